package probes

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// WorkerName is the name of the worker's (hidden) subcommand.
const WorkerName = "probe-worker"

// Command is the probe worker as a program: orders on standard input, attempts on standard output.
func Command() *cobra.Command {
	var fifo, short bool
	c := &cobra.Command{
		Use:    WorkerName,
		Short:  "probe as ordered on standard input, write attempts to standard output",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if fifo {
				if err := RealTime(); err != nil {
					return err
				}
			}
			if short {
				if err := ShortTimeSlices(); err != nil {
					return err
				}
			}
			// The engine is one goroutine; a second processor would only make the scheduler look for work in vain.
			runtime.GOMAXPROCS(1)
			return Work(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&fifo, "fifo", false, "run in the real-time scheduling class SCHED_FIFO (needs CAP_SYS_NICE)")
	c.Flags().BoolVar(&short, "short-turns", false, "ask the scheduler for short turns, which come sooner (Linux 6.12)")
	return c
}

// RealTime puts every thread of this process into the scheduling class SCHED_FIFO with the lowest priority, which
// keeps everything that is not real-time from delaying the start of attempts. Threads that start later inherit it.
// Use it in the lab's VM; on a host, a busy engine would keep ordinary programs from running.
func RealTime() error {
	err := setThreads(unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, func(now *unix.SchedAttr) bool { return now.Policy == unix.SCHED_FIFO })
	if err != nil {
		return fmt.Errorf("setting SCHED_FIFO: %w (it needs CAP_SYS_NICE)", err)
	}
	return nil
}

// shortTurn is the shortest turn that Linux grants (SCHED_OTHER's sched_runtime in sched_setattr(2), since 6.12).
const shortTimeSlice = 100 * time.Microsecond

// ShortTurns asks for the shortest turns of the ordinary scheduling class for every thread of this process: whoever asks
// for less comes sooner. It needs no privilege, and does nothing on kernels before 6.12.
func ShortTimeSlices() error {
	var self unix.SchedAttr
	if now, err := unix.SchedGetAttr(0, 0); err == nil {
		self = unix.SchedAttr{Policy: now.Policy, Nice: now.Nice, Runtime: uint64(shortTimeSlice)}
	}
	err := setThreads(self, func(now *unix.SchedAttr) bool { return now.Runtime == 0 || now.Runtime == self.Runtime })
	if err != nil {
		return fmt.Errorf("asking for short turns: %w", err)
	}
	return nil
}

// setThreads gives every thread of this process the attributes, until all have them.
func setThreads(attr unix.SchedAttr, has func(now *unix.SchedAttr) bool) error {
	const rounds = 10 // a thread may have started a thread while we looked; soon all of them are ours
	attr.Size = unix.SizeofSchedAttr
	for range rounds {
		changed, err := setThreadsOnce(attr, has)
		if err != nil || changed == 0 {
			return err
		}
	}
	return fmt.Errorf("threads without it still appear after %d rounds", rounds)
}

// setThreadsOnce returns how many threads it had to change.
func setThreadsOnce(attr unix.SchedAttr, has func(now *unix.SchedAttr) bool) (int, error) {
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
		if err == unix.ESRCH || (err == nil && has(now)) {
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
