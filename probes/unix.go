//go:build unix

package probes

import (
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of CLOCK_MONOTONIC in nanoseconds, which all processes of one kernel share.
func Monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	return ts.Nano(), nil
}

// openFiles returns the limit of open files of this process.
func openFiles() (int, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	return int(min(files.Cur, math.MaxInt32)), nil
}

// KernelRelease returns the release of this machine's kernel, and what the attempts cannot see there.
func KernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("reading the kernel's release: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if Unseen != "" {
		release = unix.ByteSliceToString(name.Sysname[:]) + " " + release + ", " + Unseen
	}
	return release, nil
}

func errnoName(errno syscall.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return "unknown errno"
}
