package vm

import (
	"context"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A run that was started as SCHED_IDLE does not wait for those that have all CPUs, and other runs do not wait for it.
func TestIdleRunsReserveCPUsAmongThemselves(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	all := func() (reserved int) {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			cpu, err := AcquireCPU(ctx, nil)
			cancel()
			if err != nil {
				return reserved
			}
			defer cpu.Release() // keeps it until all are reserved
			reserved++
		}
	}
	var held []*HostCPU
	for range all() {
		cpu, err := AcquireCPU(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, cpu)
	}
	defer func() {
		for _, cpu := range held {
			cpu.Release()
		}
	}()
	done := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays SCHED_IDLE
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			t.Error(err)
		}
		done <- all()
	}()
	if got := <-done; got != len(held) || got == 0 {
		t.Errorf("idle runs reserved %d CPUs beside runs with %d, want as many", got, len(held))
	}
}
