package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// State tells whether an entry can be used.
type State string

// The states of entries.
const (
	Intact   State = "ok"
	Damaged  State = "damaged"   // its next use makes it again
	LeftOver State = "left over" // of a killed process or an older program: nothing uses it
	InUse    State = "in use"    // a process writes it now
	Unknown  State = "unknown"   // hitless did not write it
)

// Entry is one entry of a cache, for a full check.
type Entry struct {
	Path   string
	Digest string // that it must have, with its kind, such as sha256 0123…; empty if there is none
	Lock   string // file that its writers lock; empty if they take no lock
	// Check reads all of the entry, and calls read with the size of each piece. It is nil for entries that State describes.
	Check func(ctx context.Context, read func(n int)) error
	State State
	Why   string // reason for the state, or the error of Check
}

// Inspect sets the state of an entry. The error is that of an ended ctx.
func (e *Entry) Inspect(ctx context.Context, read func(n int)) error {
	if e.Check == nil {
		if e.State == LeftOver && e.written(time.Now()) {
			e.State, e.Why = InUse, "a process writes it"
		}
		return ctx.Err()
	}
	err := e.Check(ctx, read)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		e.State = Intact
	case errors.Is(err, fs.ErrNotExist):
		e.State, e.Why = InUse, "a process has removed it during the check"
	case errors.As(err, new(*UnsealedError)):
		e.State, e.Why = LeftOver, err.Error()
	default:
		e.State, e.Why = Damaged, err.Error()
	}
	return nil
}

// written reports whether a process may still write the entry: it holds the entry or its lock, or has just changed it.
func (e *Entry) written(now time.Time) bool {
	if info, err := os.Lstat(e.Path); err != nil || now.Sub(info.ModTime()) < time.Minute {
		return true
	}
	return isHeld(e.Path) || e.Lock != "" && isHeld(e.Lock)
}

// isHeld reports whether a process has a lock of flock(2) on an existing file.
func isHeld(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return flock(f, true, false) != nil
}

// Remove removes a damaged entry or what is left over, and reports false while a process writes it. Other entries stay.
func (e *Entry) Remove(ctx context.Context) (removed bool, err error) {
	if e.State != Damaged && e.State != LeftOver {
		return false, nil
	}
	if e.Lock != "" {
		if err := os.MkdirAll(filepath.Dir(e.Lock), 0o755); err != nil {
			return false, err
		}
		lock, err := TryLock(e.Lock)
		if lock == nil || err != nil {
			return false, err
		}
		defer lock.Close()
	}
	if e.Check != nil { // a process may have made it again
		if err := e.Inspect(ctx, nil); err != nil || e.State != Damaged && e.State != LeftOver {
			return false, err
		}
	}
	return true, os.RemoveAll(e.Path)
}

// Own reports whether a name in a directory of entries belongs to this package: stamps and locks.
func Own(name string) bool { return name == stampsDir || name == LockName }

// LockName is the file in a directory of entries that processes lock while they write one.
const LockName = ".lock"

// Size is the number of bytes in an entry. Files that cannot be read are not counted.
func Size(path string) (n int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// List returns an entry for each name in a directory of entries, as describe has it; nil for names without an entry. Files that a
// killed process left are added. A missing directory has none.
func List(dir string, describe func(path string) *Entry) ([]Entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Entry
	for _, d := range names {
		path := filepath.Join(dir, d.Name())
		switch {
		case Own(d.Name()):
		case IsUnfinished(d.Name()):
			all = append(all, Entry{Path: path, State: LeftOver, Why: "a process was killed while it wrote this file"})
		default:
			if e := describe(path); e != nil {
				all = append(all, *e)
			}
		}
	}
	return all, err
}

// Foreign describes a file that hitless did not write.
func Foreign(path string) *Entry {
	return &Entry{Path: path, State: Unknown, Why: "hitless did not write it"}
}
