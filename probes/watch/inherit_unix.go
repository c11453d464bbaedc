//go:build unix

package watch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownSession keeps the signals of the caller's terminal away from a process.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// inherited reports whether the descriptors are a regular file and a pipe, as those from Start. Child processes then do not get them.
func inherited(file, pipe int) bool {
	var f, p unix.Stat_t
	if unix.Fstat(file, &f) != nil || f.Mode&unix.S_IFMT != unix.S_IFREG || unix.Fstat(pipe, &p) != nil || p.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	unix.CloseOnExec(file)
	unix.CloseOnExec(pipe)
	return true
}
