package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/hitless/hitless/internal/cache"
)

// Entries returns the programs of a cache, their index and what killed builds and downloads left, for a full check.
func Entries(dir string) ([]cache.Entry, error) {
	s := store{dir: dir}
	d, err := embedded()
	if err != nil {
		return nil, err
	}
	programs, err1 := cache.List(filepath.Join(dir, "bin"), func(path string) *cache.Entry {
		return programEntry(path, func(t Target) string {
			p, _ := d.program(t) // ParseTarget has checked the target
			return filepath.Join(dir, "lock", lockName(module.Version{Path: p.Module, Version: t.Version}))
		})
	})
	released, err4 := cache.List(s.releasedDir(), func(path string) *cache.Entry {
		return programEntry(path, func(Target) string { return filepath.Join(dir, "lock", releasedPrefix+filepath.Base(path)) })
	})
	index, err2 := cache.List(filepath.Join(dir, "index"), s.indexEntry)
	work, err3 := cache.List(filepath.Join(dir, "work"), func(path string) *cache.Entry {
		return &cache.Entry{Path: path, Lock: filepath.Join(dir, "lock", filepath.Base(path)), State: cache.LeftOver, Why: "a process was ended while it built or downloaded programs; a download would continue here"}
	})
	selves, err5 := cache.List(filepath.Join(dir, selfDir), func(path string) *cache.Entry {
		return selfEntry(path, filepath.Join(dir, selfDir, cache.LockName))
	})
	return slices.Concat(programs, released, index, work, selves), errors.Join(err1, err2, err3, err4, err5)
}

// programEntry describes a directory NAME@VERSION-KEY. lock is the file that writers of a target lock.
func programEntry(path string, lock func(Target) string) *cache.Entry {
	name := filepath.Base(path)
	t, err := ParseTarget(name[:max(0, strings.LastIndexByte(name, '-'))])
	if err != nil {
		return cache.Foreign(path)
	}
	e := &cache.Entry{Path: path, Lock: lock(t)}
	if b, err := readEntry(path); err == nil {
		e.Digest = "sha256 " + b.Sha256
	}
	e.Check = func(ctx context.Context, read func(int)) error {
		b, err := readEntry(path)
		if err != nil {
			return err
		}
		if b.Target != t {
			return otherTarget(path, t, b)
		}
		return cache.CheckAll(ctx, path, b.manifest(), read)
	}
	return e
}

// indexEntry describes a file of the index: it is damaged if it cannot be read, and left over if its entry is gone.
func (s store) indexEntry(path string) *cache.Entry {
	if !strings.HasSuffix(path, ".json") {
		return cache.Foreign(path)
	}
	name, err := entryOf(path)
	if err == nil {
		if _, err := os.Lstat(filepath.Join(s.dir, "bin", name)); err != nil {
			return &cache.Entry{Path: path, State: cache.LeftOver, Why: "the program that it names is gone"}
		}
	}
	return &cache.Entry{Path: path, Check: func(context.Context, func(int)) error {
		_, err := entryOf(path)
		return err
	}}
}
