package procs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// lockThread keeps the calling goroutine on its thread for good. The thread ends with the goroutine.
func lockThread() { runtime.LockOSThread() }

// kernelSlack is by how much the kernel lets timers be late unless it is told otherwise.
const kernelSlack = 50_000 // ns

// ownSlack gives what the calling thread starts the kernel's slack, whatever the lab's own program has.
func ownSlack() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, kernelSlack, 0, 0, 0) }
