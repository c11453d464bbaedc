//go:build !linux

package cache

import (
	"errors"
	"os"
)

// TryLockRange locks an open file and reports false when another open file has the lock. It ends with the last copy of the open file,
// those of child processes included.
func TryLockRange(f *os.File) (bool, error) {
	err := flock(f, true, false)
	if errors.Is(err, errTaken) {
		return false, nil
	}
	return err == nil, err
}

// LockRange is TryLockRange, and waits until the lock is free.
func LockRange(f *os.File) error { return flock(f, true, true) }

// IsLocked reports whether another open file has the lock of TryLockRange. For that it takes a shared lock for a moment, through an open
// file of its own, and so a TryLockRange of the same moment fails.
func IsLocked(f *os.File) (bool, error) {
	own, err := os.Open(f.Name())
	if err != nil {
		return false, err
	}
	defer own.Close()
	err = flock(own, false, false)
	if errors.Is(err, errTaken) {
		return true, nil
	}
	return false, err
}
