package procs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes make a process group that dies with the thread that starts it, and begins in the control group; nil for the lab's own.
func attributes(group *os.File) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(group.Fd())
	}
	return attr
}

func signalGroup(p *os.Process, sig syscall.Signal) error { return syscall.Kill(-p.Pid, sig) }

// defaultTimerSlack is the kernel's default for the lateness of timers.
const defaultTimerSlack = 50_000 // ns

// resetTimerSlack gives programs that the calling thread starts the default timer slack, independently of the lab's
// own.
func resetTimerSlack() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, defaultTimerSlack, 0, 0, 0) }

// resume continues a stopped program, so that it can end.
func resume(p *Process) { _ = p.Signal(syscall.SIGCONT) }
