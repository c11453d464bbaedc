//go:build !linux

package probes

import (
	"errors"
	"runtime"
)

// RealTime needs Linux: only the lab uses it.
func RealTime() error {
	return errors.New("setting SCHED_FIFO: " + runtime.GOOS + " has no such class; run on Linux")
}

// Prompt does nothing here. The lateness of the attempts shows whether this program got its turns.
func Prompt() error { return nil }
