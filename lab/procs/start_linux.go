package procs

import (
	"cmp"
	"os"
	"syscall"
	"time"

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
const defaultTimerSlack = 50 * time.Microsecond

// setTimerSlack gives programs that the calling thread starts a timer slack, or the default one, independently of the lab's own.
func setTimerSlack(slack time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(cmp.Or(slack, defaultTimerSlack)), 0, 0, 0)
}

// resume continues a stopped program, so that it can end.
func resume(p *Process) { _ = p.Signal(syscall.SIGCONT) }
