//go:build linux

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

// A main loop with a real-time priority would stop other programs while it loads a snapshot.
func TestMainLoopHasPriorityOnlyWhileTheGuestRuns(t *testing.T) {
	if err := TryPriority(); err != nil {
		t.Skipf("this user may not give real-time priorities: %v", err)
	}
	end, ids := make(chan struct{}), make(chan int)
	defer close(end)
	for range 2 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its priority
			ids <- unix.Gettid()
			<-end
		}()
	}
	of := threads{<-ids, <-ids}
	policies := func() (both [2]uint32) {
		for i, tid := range []int{of.mainLoop, of.cpu} {
			got, err := unix.SchedGetAttr(tid, 0)
			if err != nil {
				t.Fatal(err)
			}
			both[i] = got.Policy
		}
		return both
	}
	own, _ := ownPriority()
	for range 2 {
		of.level()
		if got := policies(); got != [2]uint32{own, own} {
			t.Errorf("while the guest stands still the threads have the policies %d, want %d", got, own)
		}
		of.order()
		if got := policies(); got != [2]uint32{unix.SCHED_FIFO, own} {
			t.Errorf("while the guest runs the threads have the policies %d, want %d", got, [2]uint32{unix.SCHED_FIFO, own})
		}
	}
	threads{}.order() // of a monitor without QEMU
}
