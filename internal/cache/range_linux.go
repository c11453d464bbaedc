package cache

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

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
