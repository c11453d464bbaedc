package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
)

// HostCPU is one CPU of the host that this run has for itself, as far as other runs of hitless go.
type HostCPU struct {
	Number int
	lock   *cache.Lock
}

// TakeCPU takes the first free CPU out of those that this process may use, and waits while other runs hold all of them.
// QEMU's own threads must share one CPU: when the guest goes idle, its main loop may otherwise skip time before the CPU
// thread has accounted for the instructions that it just ran, and runs differ by microseconds.
func TakeCPU(ctx context.Context, line func(string)) (*HostCPU, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("asking which CPUs this process may use: %w", err)
	}
	for told := false; ; told = true {
		cpu, err := lockFreeCPU(allowed)
		if cpu != nil || err != nil {
			return cpu, err
		}
		if !told && line != nil {
			line("hitless: waiting for a free CPU: other runs hold all of them")
		}
		select {
		case <-time.After(cache.RetryInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func lockFreeCPU(allowed unix.CPUSet) (*HostCPU, error) {
	for n := range 1024 {
		if !allowed.IsSet(n) {
			continue
		}
		name := filepath.Join(os.TempDir(), fmt.Sprintf("hitless-cpu-%d.lock", n))
		lock, err := cache.TryLock(name)
		if err != nil {
			return nil, fmt.Errorf("taking a CPU for the guest: %w", err)
		}
		if lock != nil {
			return &HostCPU{Number: n, lock: lock}, nil
		}
	}
	return nil, nil
}

// Release frees the CPU for other runs.
func (c *HostCPU) Release() { c.lock.Close() }

// PinThread binds the calling thread, and what it starts, to one CPU.
func PinThread(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("binding the guest to CPU %d: %w (without it runs do not repeat)", cpu, err)
	}
	return nil
}
