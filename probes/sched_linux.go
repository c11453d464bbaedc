package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// RealTime sets the scheduling class SCHED_FIFO with the lowest priority for every thread of this process, so that
// ordinary processes do not delay attempts. Later threads inherit it. It is for the lab's VM: on a host, a busy engine
// would starve ordinary programs.
func RealTime() error {
	err := setThreads(unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, func(now *unix.SchedAttr) bool { return now.Policy == unix.SCHED_FIFO })
	if err != nil {
		return fmt.Errorf("setting SCHED_FIFO: %w (it needs CAP_SYS_NICE)", err)
	}
	return nil
}

// shortTimeSlice is the shortest time slice of Linux (SCHED_OTHER's sched_runtime in sched_setattr(2), since 6.12).
const shortTimeSlice = 100 * time.Microsecond

// Prompt lets attempts start and answers be read sooner on a busy machine. It requests the shortest time slice of the ordinary scheduling
// class for every thread, which needs no privilege and has no effect on kernels before 6.12. And it keeps the pages of this process in
// memory, where RLIMIT_MEMLOCK allows that: otherwise the kernel may take idle ones, and reading them again delays an attempt.
func Prompt() error {
	var self unix.SchedAttr
	if now, err := unix.SchedGetAttr(0, 0); err == nil {
		self = unix.SchedAttr{Policy: now.Policy, Nice: now.Nice, Runtime: uint64(shortTimeSlice)}
	}
	err := setThreads(self, func(now *unix.SchedAttr) bool { return now.Runtime == 0 || now.Runtime == self.Runtime })
	if err != nil {
		return fmt.Errorf("requesting short time slices: %w", err)
	}
	err = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_ONFAULT) // not MCL_FUTURE: beyond the limit later allocations would fail
	if err != nil && !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("keeping the pages of this program in memory: %w", err)
	}
	return nil
}

// setThreads sets the attributes of every thread of this process, until all match.
func setThreads(attr unix.SchedAttr, matches func(now *unix.SchedAttr) bool) error {
	const rounds = 10 // a thread may start another during a round; it inherits the attributes once its parent has them
	attr.Size = unix.SizeofSchedAttr
	for range rounds {
		changed, err := setThreadsOnce(attr, matches)
		if err != nil || changed == 0 {
			return err
		}
	}
	return fmt.Errorf("threads without these attributes still appear after %d rounds", rounds)
}

// setThreadsOnce returns the number of threads that it changed.
func setThreadsOnce(attr unix.SchedAttr, matches func(now *unix.SchedAttr) bool) (int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, fmt.Errorf("listing the threads of this process: %w (is /proc mounted?)", err)
	}
	changed := 0
	for _, e := range slices.Backward(entries) {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		now, err := unix.SchedGetAttr(tid, 0)
		if err == unix.ESRCH || (err == nil && matches(now)) {
			continue
		}
		if err := unix.SchedSetAttr(tid, &attr, 0); err == unix.ESRCH {
			continue
		} else if err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}
