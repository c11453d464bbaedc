//go:build unix

package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// flock locks an open file, together with all its copies, until the last of them is closed. Without wait it returns errTaken when
// another open file has a lock that forbids this one.
func flock(f *os.File, exclusive, wait bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errTaken
		}
		return err
	}
}

// FreeBytes returns the space that a process without privileges can use in the file system of a directory.
func FreeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}

// MayWrite returns an error where this user cannot make files in a directory. Unlike CheckWritable it makes none: it is for checks that
// change nothing, such as those before a run has begun.
func MayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
