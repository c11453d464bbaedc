//go:build !linux

package vm

import (
	"context"
	"errors"
	"runtime"
)

// HostCPU is the CPU of a guest. Only Linux binds a program to one: elsewhere the system chooses, and equal inputs may give different
// histories.
type HostCPU struct{ Number int }

// AcquireCPU reserves nothing.
func AcquireCPU(context.Context, func(string)) (*HostCPU, error) { return &HostCPU{}, nil }

// Release does nothing.
func (*HostCPU) Release() {}

// PinThread binds nothing.
func PinThread(int) error { return nil }

// TryPriority fails: real-time priorities for threads of another program are Linux's.
func TryPriority() error {
	return errors.New("setting the priorities of QEMU's threads is not possible on " + runtime.GOOS)
}

// threads are those of QEMU whose priorities matter.
type threads struct{}

func threadsOf(int) threads { return threads{} }

func (threads) order() {}
func (threads) level() {}
