package site

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
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

// addHitless adds the program of hitless to an image, where it is the first program. sum is its SHA-256 in hex, or empty.
func addHitless(img *vm.Image, program, sum string) error {
	if err := checkStatic(program); err != nil {
		return err
	}
	if sum == "" {
		img.Add(guest.Program, program, 0o755)
		return nil
	}
	return img.AddWithSum(guest.Program, program, 0o755, sum)
}

// checkStatic refuses a program that needs a loader: a guest has none, and its kernel would panic without a first program.
func checkStatic(program string) error {
	dynamic, err := tools.Dynamic(program)
	if err != nil {
		return Usagef("reading the program of hitless: %w", err)
	}
	if dynamic {
		return Usagef("the program of hitless %s is linked dynamically, and a lab has neither its loader nor its libraries; build it with `make build`, or with CGO_ENABLED=0", program)
	}
	return nil
}
