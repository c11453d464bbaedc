// Package version identifies the build of this program. A release has its version in a stamp of fixed length, and Plain takes the stamp
// out of the program that runs in a guest: so a version changes no history.
package version

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// stamp is empty, or set by the linker (hack/stamp.sh) to the begin, the text with blanks up to textBytes, and the end.
var stamp string

const (
	textBytes = 64
	blank     = '_'
	end       = ']'
)

// begin is put together when the program runs: as a constant it would be in the program a second time.
func begin() []byte { return []byte(strings.Join([]string{"hitless", "version["}, "-")) }

// String is the version with the revision, of the stamp or of the build information, and the version of Go.
func String() string {
	info, known := debug.ReadBuildInfo()
	if text := textOf(stamp); text != "" {
		number, revision, has := strings.Cut(text, "/")
		if has {
			number += " revision " + revision
		}
		if known {
			number += " " + info.GoVersion
		}
		return number
	}
	if !known {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " revision " + s.Value
		}
	}
	return text + " " + info.GoVersion
}

// textOf is the text of a stamp; empty for none.
func textOf(stamp string) string {
	text := strings.TrimPrefix(stamp, string(begin()))
	return strings.TrimRight(strings.TrimSuffix(text, string(end)), string(blank))
}

// Release is the version and revision of this program if it is of a release; empty otherwise.
func Release() string { return textOf(stamp) }

// ReleaseOf is Release of the program in a file.
func ReleaseOf(program string) (string, error) {
	data, where, err := find(program)
	if err != nil || where < 0 {
		return "", err
	}
	return textOf(string(data[where : where+textBytes])), nil
}

// OwnSum is the SHA-256, in hex, of the running program without its version: an input of runs.
func OwnSum(ctx context.Context) (string, error) {
	program, err := os.Executable()
	if err == nil && textOf(stamp) == "" {
		return cache.Sha256(ctx, program)
	}
	if err != nil {
		return "", err
	}
	return sum(program)
}

// Entries lists the copies of Plain in a directory of the cache.
func Entries(dir string) ([]cache.Entry, error) {
	return cache.List(dir, func(path string) *cache.Entry {
		name := filepath.Base(path)
		if cache.IsUnfinished(name) {
			return &cache.Entry{Path: path, State: cache.LeftOver, Why: "a process was killed while it copied the program"}
		}
		if len(name) != 2*sha256.Size {
			return cache.Foreign(path)
		}
		return &cache.Entry{Path: path, Digest: "sha256 " + name, Check: func(ctx context.Context, _ func(int)) error {
			found, err := cache.Sha256(ctx, path)
			if err == nil && found != name {
				err = fmt.Errorf("it has the sha256 %s", found)
			}
			return err
		}}
	})
}

// sum is the SHA-256, in hex, of a program without its version.
func sum(program string) (string, error) {
	data, where, err := find(program)
	if err != nil {
		return "", err
	}
	return digest(unstamped(data, where)), nil
}

func digest(data []byte) string {
	d := sha256.Sum256(data)
	return hex.EncodeToString(d[:])
}

// Plain is the file of a program without its version: the program itself if it has none, or else a copy in a directory of the cache, which
// it makes. The latest copies stay.
func Plain(ctx context.Context, program, dir string) (string, error) {
	data, where, err := find(program)
	if err != nil || where < 0 {
		return program, err
	}
	name, err := plain(ctx, unstamped(data, where), dir)
	if err != nil {
		return "", fmt.Errorf("copying %s without its version: %w", program, err)
	}
	return name, cache.Prune(dir, "", cache.Limit{Keep: 3, MinAge: 24 * time.Hour}, time.Now()) // a run may use another one
}

// plain writes a program, by its digest, to a directory of the cache.
func plain(ctx context.Context, data []byte, dir string) (string, error) {
	name := filepath.Join(dir, digest(data))
	_ = cache.MarkUsed(name) // there may be no copy yet, or no place for the mark: the oldest copies are removed
	if found, err := cache.Sha256(ctx, name); err == nil && found == filepath.Base(name) {
		return name, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// It can be run as soon as it has its name.
	f, err := cache.Create(dir)
	if err != nil {
		return "", err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(0o755); err != nil {
		return "", err
	}
	return name, f.Finish(filepath.Base(name))
}

// unstamped is a program whose stamp at an offset has no text; a negative offset is that of none.
func unstamped(data []byte, where int) []byte {
	if where >= 0 {
		copy(data[where:], bytes.Repeat([]byte{blank}, textBytes))
	}
	return data
}

// find reads a program, and is the offset of the text of its stamp; -1 for a program without a version.
func find(program string) (data []byte, found int, err error) {
	found = -1
	if data, err = os.ReadFile(program); err != nil {
		return nil, found, fmt.Errorf("reading the program of hitless: %w", err)
	}
	for at := 0; ; {
		i := bytes.Index(data[at:], begin())
		if i < 0 {
			return data, found, nil
		}
		at += i + len(begin())
		if at+textBytes >= len(data) || data[at+textBytes] != end || textOf(string(data[at:at+textBytes])) == "" {
			continue
		}
		if found >= 0 {
			return nil, -1, fmt.Errorf("%s has two versions; use one of `make release`", program)
		}
		found = at
	}
}
