package vm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Packed images are kept for the next run, but each new build of a program makes another of 100 MB and more.
const (
	keptImages = 8
	// youngImage is how long after its last use an image stays in any case: whoever has just packed it has yet to hold it.
	youngImage = 10 * time.Minute
)

// holdImage keeps a packed image from being swept away until it is closed.
func holdImage(file string) (*os.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening the guest's files: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking the guest's files %s: %w", file, err)
	}
	return f, nil
}

// sweepImages removes all but the images that were used last, those that are in use, and those that were used less than
// youngImage before now.
func sweepImages(cache string, now time.Time) error {
	files, err := filepath.Glob(filepath.Join(cache, imagePrefix+"*"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil { // else another has swept it
			used[file] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	var failed error
	for _, file := range files[min(keptImages, len(files)):] {
		if now.Sub(used[file]) >= youngImage {
			failed = errors.Join(failed, removeUnused(file))
		}
	}
	return failed
}

func removeUnused(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return nil // it is gone
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // a guest boots from it
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sweeping old images of guests: %w", err)
	}
	return nil
}
