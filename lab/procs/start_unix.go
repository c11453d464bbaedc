//go:build unix && !linux

package procs

import (
	"os"
	"syscall"
	"time"
)

// attributes make a process group. Nothing here ends it with this process: a program must end itself at the end of its input.
func attributes(*os.File) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(p *os.Process, sig syscall.Signal) error { return syscall.Kill(-p.Pid, sig) }

func setTimerSlack(time.Duration) error { return nil }

// resume continues a stopped program, so that it can end.
func resume(p *Process) { _ = p.Signal(syscall.SIGCONT) }
