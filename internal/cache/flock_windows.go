package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// flock locks an open file until it is closed. The lock is on a byte that no file has: on Windows a lock keeps others from reading.
// Without wait it returns errTaken when another open file has a lock that forbids this one.
func flock(f *os.File, exclusive, wait bool) error {
	var how uint32
	if exclusive {
		how = windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		how |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errTaken
	}
	return err
}

// FreeBytes returns the space that the user can use in the file system of a directory.
func FreeBytes(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	var free uint64
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	return int64(free), nil
}

// MayWrite returns nil: Windows tells only when a file is made.
func MayWrite(string) error { return nil }
