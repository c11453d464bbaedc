// Package version identifies the build of this program. A release has its version in a stamp of fixed length, and Own takes the stamp
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

// Own is the file of the running program without its version: the program itself if it has none, or else a copy in a directory of the
// cache, which it makes. The latest copies stay.
func Own(ctx context.Context, dir string) (string, error) {
	program, err := os.Executable()
	if err != nil || textOf(stamp) == "" {
		return program, err
	}
	name, err := plain(ctx, program, dir)
	if err != nil {
		return "", fmt.Errorf("copying this program without its version: %w", err)
	}
	_ = cache.MarkUsed(name)                                                                    // without it an older copy may stay instead
	return name, cache.Prune(dir, "", cache.Limit{Keep: 3, MinAge: 24 * time.Hour}, time.Now()) // a run may use another one
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
	return sum(ctx, program)
}

// Entries lists the copies of Own in a directory of the cache.
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
func sum(ctx context.Context, program string) (string, error) {
	where, err := find(program)
	if err != nil {
		return "", err
	}
	if where < 0 {
		return cache.Sha256(ctx, program)
	}
	data, err := unstamped(program, where)
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:]), err
}

// plain is the file of a program without its version, see Own.
func plain(ctx context.Context, program, dir string) (string, error) {
	where, err := find(program)
	if err != nil || where < 0 {
		return program, err
	}
	data, err := unstamped(program, where)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(data)
	name := filepath.Join(dir, hex.EncodeToString(digest[:]))
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

// unstamped is a program whose stamp at an offset has no text.
func unstamped(program string, where int) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the program of hitless: %w", err)
	}
	copy(data[where:], bytes.Repeat([]byte{blank}, textBytes))
	return data, nil
}

// find is the offset of the text of a program's stamp; -1 for a program without a version.
func find(program string) (int, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return -1, fmt.Errorf("reading the program of hitless: %w", err)
	}
	found := -1
	for at := 0; ; {
		i := bytes.Index(data[at:], begin())
		if i < 0 {
			break
		}
		at += i + len(begin())
		if at+textBytes >= len(data) || data[at+textBytes] != end || textOf(string(data[at:at+textBytes])) == "" {
			continue
		}
		if found >= 0 {
			return -1, fmt.Errorf("%s has two versions; use one of `make release`", program)
		}
		found = at
	}
	return found, nil
}
