//go:build unix

package subject

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalOf is the signal with a name such as TERM; 0 for none.
func signalOf(name string) syscall.Signal { return unix.SignalNum("SIG" + name) }
