// Package cache keeps files that several processes share: it takes locks, writes files and directories that appear complete or
// not at all, finds the cache directory, verifies entries by their digests, and prunes old ones. Other packages do none of that
// themselves. It imports nothing of this project.
//
// An entry is a directory with a manifest (Seal), or a file whose name has its digest. Verified returns intact entries only, and
// makes damaged ones again.
//
// A process that is killed leaves no half-written file under a final name. It may leave a file whose name begins with
// UnfinishedPrefix; Prune removes those of Create that no process holds any more.
package cache

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Dir returns the cache directory: $HITLESS_CACHE, or hitless in the user's cache directory. It need not exist. The error names
// the variable to set.
func Dir() (string, error) {
	if dir := os.Getenv("HITLESS_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w; set HITLESS_CACHE to a directory", err)
	}
	return filepath.Join(dir, "hitless"), nil
}

// CheckWritable returns the error of creating a file in a directory. It is for folders that are about to get files; see MayWrite.
func CheckWritable(dir string) error {
	f, err := os.CreateTemp(dir, UnfinishedPrefix)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Limit bounds the entries of a cache.
type Limit struct {
	Keep   int           // number of most recently used entries that stay
	MinAge time.Duration // time since the last use for which an entry stays in any case
}

// Prune removes the files dir/PREFIX* beyond the limit, by the time of their last use (MarkUsed) before now, and files that Create
// left unfinished. A file that is held by Create, Hold or TryHold stays, and so does one that is marked meanwhile.
func Prune(dir, prefix string, limit Limit, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("pruning the cache: %w", err)
	}
	type entry struct {
		path string
		used time.Time
	}
	var complete []entry
	var unfinished []string
	for _, e := range entries {
		info, err := e.Info()
		path := filepath.Join(dir, e.Name())
		switch {
		case err != nil || !info.Mode().IsRegular(): // removed meanwhile, or no entry
		case IsUnfinished(e.Name()):
			unfinished = append(unfinished, path)
		case strings.HasPrefix(e.Name(), prefix):
			complete = append(complete, entry{path, lastUsed(path, info)})
		}
	}
	slices.SortFunc(complete, func(a, b entry) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.path, b.path)) })
	var errs []error
	for _, path := range unfinished {
		errs = append(errs, removeUnheld(path, now))
	}
	for _, e := range complete[min(limit.Keep, len(complete)):] {
		errs = append(errs, removeUnheld(e.path, now.Add(-limit.MinAge)))
	}
	return errors.Join(append(errs, pruneStamps(dir, now))...)
}

// removeUnheld removes a file that no process holds, unless it was used after the given time.
func removeUnheld(path string, unusedSince time.Time) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pruning the cache: %w", err)
	}
	defer f.Close()
	if flock(f, true, false) != nil {
		return nil // held
	}
	// Only with the lock it is certain that no process marks the file as used between this check and its removal.
	if info, err := f.Stat(); err != nil || lastUsed(path, info).After(unusedSince) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pruning the cache: %w", err)
	}
	return nil
}
