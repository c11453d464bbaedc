//go:build !linux

package vm

import (
	"context"
	"errors"
	"runtime"
	"syscall"
)

// errNoCPU is why no guest runs here yet: package site refuses a lab before. A port of the lab needs these functions, which give QEMU a CPU and
// priorities of its own, and nothing else of this package.
var errNoCPU = errors.New("reserving a CPU for QEMU is not possible on " + runtime.GOOS)

// HostCPU is a CPU that only one guest uses.
type HostCPU struct{ Number int }

// AcquireCPU fails here.
func AcquireCPU(context.Context, func(string)) (*HostCPU, error) { return nil, errNoCPU }

// Release does nothing.
func (*HostCPU) Release() {}

// PinThread fails here.
func PinThread(int) error { return errNoCPU }

// TryPriority fails here.
func TryPriority() error { return errNoCPU }

// threads are those of QEMU whose priorities matter.
type threads struct{}

func threadsOf(int) threads { return threads{} }

func (threads) order() {}
func (threads) level() {}

func qemuAttributes() *syscall.SysProcAttr { return nil }
