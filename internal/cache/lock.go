package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// RetryInterval is the time between two attempts to take a lock that another process has. flock(2) gives no event, and to wait
// in it would keep a thread that a context cannot interrupt.
const RetryInterval = 250 * time.Millisecond

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
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return &Lock{f}, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, f.Close()
		}
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
func Hold(path string) (*os.File, error) { return hold(path, unix.LOCK_SH) }

// TryHold is Hold, and returns an error at once for an entry that Prune is removing.
func TryHold(path string) (*os.File, error) { return hold(path, unix.LOCK_SH|unix.LOCK_NB) }

func hold(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

// TryLockRange locks an open file (F_OFD_SETLK of fcntl(2)) and reports false when another process has the lock. Unlike a Lock it
// can be tested by IsLocked. It ends with the last copy of the open file, those of child processes included.
func TryLockRange(f *os.File) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile(unix.F_WRLCK))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// LockRange is TryLockRange, and waits until the lock is free.
func LockRange(f *os.File) error {
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, wholeFile(unix.F_WRLCK))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsLocked reports whether another open file has the lock of TryLockRange. It takes no lock.
func IsLocked(f *os.File) (bool, error) {
	lock := wholeFile(unix.F_WRLCK)
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, lock)
	return err == nil && lock.Type != unix.F_UNLCK, err
}

func wholeFile(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Whence: io.SeekStart} }

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
		err = errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.Rename(name+".new", name))
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
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(name))
		}
		lock.Close()
	}
}
