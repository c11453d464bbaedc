package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/cache"
)

// selfDir is the directory of a store with builds of hitless for guests.
const selfDir = "self"

// selfName is the program in them.
const selfName = "hitless"

// Self returns the program of a version of hitless for guests. It builds the one that is not in the cache, as `make build` does. main is the
// package of its main function.
func (b *Builder) Self(ctx context.Context, m module.Version, main string) (string, error) {
	s, err := b.store()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.dir, selfDir, selfName+"@"+m.Version)
	report := func(line string) { b.report(m, line) }
	return cache.Verified(ctx, cache.Source[string]{
		Lock: filepath.Join(s.dir, selfDir, cache.LockName), Report: report,
		Open: func() (string, error) { return openSelf(ctx, dir) },
		Make: func() (string, error) {
			report("building the program of guests, for linux/" + Architecture)
			if err := installSelf(ctx, m, main, dir); err != nil {
				return "", fmt.Errorf("building %s for guests: %w", m, err)
			}
			return openSelf(ctx, dir)
		},
	})
}

func openSelf(ctx context.Context, dir string) (string, error) {
	files, err := cache.ReadManifest(dir)
	if err == nil {
		err = cache.Check(ctx, dir, files)
	}
	return filepath.Join(dir, selfName), err
}

// installSelf builds into a directory of its own and renames it. The caller has the lock.
func installSelf(ctx context.Context, m module.Version, main, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), cache.UnfinishedPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var modules, msg bytes.Buffer
	if err := run(ctx, command{Args: []string{"env", "GOMODCACHE"}, Out: &modules, Err: &msg}); err != nil {
		return fmt.Errorf("%w: %s", err, firstLines(msg.String()))
	}
	// go install refuses GOBIN for another platform, and writes below GOPATH.
	env := []string{"GOPATH=" + work, "GOBIN=", "GOMODCACHE=" + string(bytes.TrimSpace(modules.Bytes())), "GOFLAGS="}
	args := []string{"install", "-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-ldflags", "-s -w", main + "@" + m.Version}
	if err := run(ctx, command{Dir: work, Env: env, Args: args, Out: &msg, Err: &msg}); err != nil {
		return fmt.Errorf("%w: %s", err, firstLines(msg.String()))
	}
	found, _ := filepath.Glob(filepath.Join(work, "bin", "*", selfName))
	own, _ := filepath.Glob(filepath.Join(work, "bin", selfName)) // on the platform of guests
	if found = append(found, own...); len(found) != 1 {
		return errors.New("go install left no program")
	}
	root := filepath.Join(work, "root")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Rename(found[0], filepath.Join(root, selfName)), cache.Seal(ctx, root)); err != nil {
		return err
	}
	return cache.ReplaceDir(root, dir)
}

func selfEntry(dir, lock string) *cache.Entry {
	e := &cache.Entry{Path: dir, Lock: lock}
	if files, err := cache.ReadManifest(dir); err == nil {
		e.Digest = "sha256 " + files.Digest()
	}
	e.Check = func(ctx context.Context, read func(int)) error {
		files, err := cache.ReadManifest(dir)
		if err != nil {
			return err
		}
		return cache.CheckAll(ctx, dir, files, read)
	}
	return e
}
