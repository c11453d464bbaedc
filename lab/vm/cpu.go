//go:build linux

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/cache"
)

// HostCPU is a host CPU that is reserved for this run by a file lock; other hitless runs on the host respect the
// lock.
type HostCPU struct {
	Number int
	lock   *cache.Lock
}

// AcquireCPU reserves the first free CPU of this process's affinity mask, and waits while other runs hold all of
// them. line, which may be nil, gets a message when it waits. Runs that were started as SCHED_IDLE leave the CPU to
// others, and reserve CPUs only among themselves.
//
// QEMU's threads must share one CPU: otherwise the main loop may advance the virtual clock before the CPU thread has
// accounted for its last instructions, and runs differ by microseconds.
func AcquireCPU(ctx context.Context, line func(string)) (*HostCPU, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("reading the CPU affinity of this process: %w", err)
	}
	locks := "hitless-cpu-%d.lock"
	if isIdle() {
		locks = "hitless-idle-cpu-%d.lock"
	}
	for reported := false; ; reported = true {
		cpu, err := lockFreeCPU(allowed, locks)
		if cpu != nil || err != nil {
			return cpu, err
		}
		if !reported && line != nil {
			line("hitless: waiting for a free CPU: other runs hold all of them")
		}
		select {
		case <-time.After(cache.RetryInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isIdle reports whether this process was started as SCHED_IDLE (sched(7)).
func isIdle() bool {
	own, err := unix.SchedGetAttr(0, 0)
	return err == nil && own.Policy == unix.SCHED_IDLE
}

func lockFreeCPU(allowed unix.CPUSet, locks string) (*HostCPU, error) {
	for n := range 1024 {
		if !allowed.IsSet(n) {
			continue
		}
		name := filepath.Join(os.TempDir(), fmt.Sprintf(locks, n))
		lock, err := cache.TryLock(name)
		if err != nil {
			return nil, fmt.Errorf("reserving a CPU for the guest: %w", err)
		}
		if lock != nil {
			return &HostCPU{Number: n, lock: lock}, nil
		}
	}
	return nil, nil
}

// Release releases the CPU for other runs.
func (c *HostCPU) Release() { c.lock.Close() }

// PinThread binds the calling thread, and the processes that it starts, to one CPU.
func PinThread(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("binding the guest to CPU %d: %w (runs on several CPUs are not deterministic)", cpu, err)
	}
	return nil
}

// threads are two threads of QEMU that share a CPU, by their ids. The zero value is none.
type threads struct{ mainLoop, cpu int }

// threadsOf returns the threads of a QEMU that has just been started. The CPU thread starts shortly after QEMU; no event announces it.
func threadsOf(pid int) threads {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if tid, ok := cpuThread(pid); ok {
			return threads{pid, tid}
		}
	}
	return threads{}
}

// order gives QEMU's main loop priority over its CPU thread, before the guest runs. When the guest goes idle, the main loop advances the
// virtual clock to the next timer. If the main loop still has work while the guest runs, it may advance the clock before the last
// instructions are accounted for, and runs differ by microseconds. With priority it always finishes before the guest runs.
//
// The main loop gets the lowest real-time priority where that is allowed (sched(7)); while the guest runs it is nearly always idle, so it
// starves nothing. The CPU thread would starve the main loop; it runs before ordinary programs, unless this one was started with a nice
// value or as SCHED_IDLE. Without permission the CPU thread gets a higher nice value instead. Failure is not an error: the run's hash shows
// whether the run repeats.
func (t threads) order() {
	if t == (threads{}) {
		return
	}
	policy, nice := ownPriority()
	if setPriority(t.mainLoop, unix.SCHED_FIFO, 0, 1) != nil || setPriority(t.cpu, policy, nice, 0) != nil {
		_ = setPriority(t.cpu, unix.SCHED_BATCH, max(5, nice), 0)
	}
}

// level gives both threads the priority of the CPU thread, while the guest stands still. The main loop then loads or saves gigabytes, and
// with a real-time priority it would stop other programs for half a second.
func (t threads) level() {
	if t == (threads{}) {
		return
	}
	policy, nice := ownPriority()
	_, _ = setPriority(t.mainLoop, policy, nice, 0), setPriority(t.cpu, policy, nice, 0)
}

// ownPriority is the policy and the nice value of CPU threads, by those of this process.
func ownPriority() (policy uint32, nice int32) {
	switch own, err := unix.SchedGetAttr(0, 0); {
	case err != nil:
	case own.Policy == unix.SCHED_IDLE:
		return unix.SCHED_IDLE, 0
	case own.Nice > 0:
		return unix.SCHED_BATCH, own.Nice
	}
	return unix.SCHED_BATCH, -10
}

func setPriority(tid int, policy uint32, nice int32, priority uint32) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Nice: nice, Priority: priority,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
}

// TryPriority reports whether this process may give the real-time priority that QEMU's main loop gets.
func TryPriority() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine, and its priority too
		done <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}()
	return <-done
}

// cpuThread returns the thread that runs the guest's instructions, by QEMU's thread name.
func cpuThread(pid int) (int, bool) {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(comm), "CPU 0/") || strings.HasPrefix(string(comm), "ALL CPUs/") {
			tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return tid, err == nil
		}
	}
	return 0, false
}

// qemuAttributes make a process group that dies with the thread that starts it.
func qemuAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
