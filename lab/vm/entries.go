package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// Entries returns the kernels, images and snapshots of a cache for a full check.
func Entries(dir string) ([]cache.Entry, error) {
	var all []cache.Entry
	var errs []error
	for name, describe := range map[string]func(string) *cache.Entry{"kernel": kernelEntry, "initramfs": imageEntry, "snapshots": snapshotEntry} {
		entries, err := cache.List(filepath.Join(dir, name), describe)
		all, errs = append(all, entries...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func kernelEntry(dir string) *cache.Entry {
	lock := filepath.Join(filepath.Dir(dir), cache.LockName)
	switch name := filepath.Base(dir); {
	case name == listsDir: // apt verifies them
		return nil
	case strings.HasPrefix(name, unpackPrefix):
		return &cache.Entry{Path: dir, Lock: lock, State: cache.LeftOver, Why: "a process was killed while it unpacked a kernel"}
	case !strings.HasPrefix(name, "linux-image-"):
		return cache.Foreign(dir)
	}
	e := &cache.Entry{Path: dir, Lock: lock}
	files, err := cache.ReadManifest(dir)
	if err == nil {
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

func imageEntry(file string) *cache.Entry {
	lock := filepath.Join(filepath.Dir(file), cache.LockName)
	name := filepath.Base(file)
	if !strings.HasPrefix(name, imagePrefix) || !strings.HasSuffix(name, imageSuffix) {
		return cache.Foreign(file)
	}
	if strings.Count(name, "-") == 1 { // lab-KEY.cpio
		return &cache.Entry{Path: file, Lock: lock, State: cache.LeftOver, Why: (&cache.UnsealedError{Entry: file}).Error()}
	}
	sum := imageSum(file)
	return &cache.Entry{Path: file, Lock: lock, Digest: "sha256 " + sum, Check: func(ctx context.Context, read func(int)) error {
		return cache.CheckAll(ctx, file, cache.Manifest{cache.Itself: sum}, read)
	}}
}

func snapshotEntry(file string) *cache.Entry {
	name := filepath.Base(file)
	if !isSnapshot(name) {
		return cache.Foreign(file)
	}
	return &cache.Entry{Path: file, Digest: "crc32c " + snapshotSum(file), Check: func(ctx context.Context, read func(int)) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		return snapshotDamage(file, snapshotName(watched{ctx, f, read}, snapshotStem(file)))
	}}
}

func isSnapshot(name string) bool {
	for _, kind := range snapshotKinds {
		if strings.HasPrefix(name, kind.prefix) {
			return strings.HasSuffix(name, snapshotSuffix)
		}
	}
	return false
}

// snapshotStem is the prefix and the key in the name of a snapshot.
func snapshotStem(file string) string {
	name := filepath.Base(file)
	return name[:max(0, strings.LastIndexByte(name, '-'))]
}

// watched is a file whose reading ends with ctx, and that reports each piece.
type watched struct {
	ctx  context.Context
	file *os.File
	read func(n int)
}

// ReadAt implements io.ReaderAt.
func (w watched) ReadAt(p []byte, at int64) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.file.ReadAt(p, at)
	if w.read != nil {
		w.read(n)
	}
	return n, err
}
