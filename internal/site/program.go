package site

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// programState tells whether a file is still the one that was read.
type programState struct {
	path     string
	size     int64
	modified time.Time
}

// programSums has the digests that this process has computed, by programState. A comparison runs one program many times.
var programSums sync.Map

// programSha256 is the SHA-256 of the hitless that the run's guests and probes execute, in hex.
func (c Call) programSha256(ctx context.Context) (string, error) {
	info, err := os.Stat(c.Program)
	if err != nil {
		return "", Usagef("reading the program of hitless: %w", err)
	}
	state := programState{c.Program, info.Size(), info.ModTime()}
	if sum, known := programSums.Load(state); known {
		return sum.(string), nil
	}
	sum, err := cache.Sha256(ctx, c.Program)
	if err != nil {
		return "", Usagef("reading the program of hitless: %w", err)
	}
	programSums.Store(state, sum)
	return sum, nil
}
