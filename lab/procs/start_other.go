//go:build !unix

package procs

import (
	"os"
	"syscall"
	"time"
)

func attributes(*os.File) *syscall.SysProcAttr { return nil }

// signalGroup ends the process: there are no other signals.
func signalGroup(p *os.Process, _ syscall.Signal) error { return p.Kill() }

func setTimerSlack(time.Duration) error { return nil }

// resume does nothing: no program can be stopped.
func resume(*Process) {}
