package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// RetryInterval is the time between two attempts to take a lock that another process has. flock(2) gives no event, and to wait
// in it would keep a thread that a context cannot interrupt.
const RetryInterval = 250 * time.Millisecond

// errTaken is the error of flock for a lock that another open file has.
var errTaken = errors.New("another process has the lock")

// Lock is an exclusive lock on a lock file, until Close or the end of the process. Processes that inherit the open file keep it
// locked.
type Lock struct{ file *os.File }

// TryLock takes the lock of a file, which it creates in an existing directory. It returns nil without an error when the lock is
// taken. A lock file of another user that can only be read is locked, too.
func TryLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if errors.Is(err, os.ErrPermission) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a lock file: %w", err)
	}
	switch err := flock(f, true, false); {
	case err == nil:
		return &Lock{f}, nil
	case errors.Is(err, errTaken):
		return nil, f.Close()
	default:
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
}

// Acquire takes the lock of a file, whose directory it creates. While another process has the lock it calls waiting once, which
// may be nil, and retries until ctx ends; the error is then the cause of ctx.
func Acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of a lock file: %w", err)
	}
	for {
		lock, err := TryLock(path)
		if lock != nil || err != nil {
			return lock, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(RetryInterval):
		}
	}
}

// Close releases the lock. The lock file stays.
func (l *Lock) Close() error { return l.file.Close() }

// Hold opens an entry and keeps Prune from removing it until the file is closed.
func Hold(path string) (*os.File, error) { return hold(path, true) }

// TryHold is Hold, and returns an error at once for an entry that Prune is removing.
func TryHold(path string) (*os.File, error) { return hold(path, false) }

func hold(path string, wait bool) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(f, false, wait); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

// TempDir is a temporary directory that other processes remove once its owner is dead.
type TempDir struct {
	Path string
	lock *os.File
}

// ownerLock is the file in a TempDir that its owner keeps locked.
const ownerLock = "lock"

// NewTempDir makes a temporary directory whose name begins with prefix, and removes those of dead owners with the same prefix.
func NewTempDir(prefix string) (*TempDir, error) {
	removeDead(os.TempDir(), prefix)
	path, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("making a temporary directory: %w", err)
	}
	// The lock file gets its name once it is locked: an unlocked one means that the owner is dead.
	name := filepath.Join(path, ownerLock)
	lock, err := os.Create(name + ".new")
	if err == nil {
		err = errors.Join(flock(lock, true, true), os.Rename(name+".new", name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a temporary directory: %w", err), os.RemoveAll(path))
	}
	return &TempDir{path, lock}, nil
}

// Remove removes the directory.
func (d *TempDir) Remove() error { return errors.Join(os.RemoveAll(d.Path), d.lock.Close()) }

// removeDead keeps directories without a lock file: their owners are about to lock them.
func removeDead(parent, prefix string) {
	locks, _ := filepath.Glob(filepath.Join(parent, prefix+"*", ownerLock))
	for _, name := range locks {
		lock, err := os.Open(name)
		if err != nil {
			continue
		}
		if flock(lock, true, false) == nil {
			os.RemoveAll(filepath.Dir(name))
		}
		lock.Close()
	}
}
