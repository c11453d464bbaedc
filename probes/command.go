package probes

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// WorkerName is the name of the worker's (hidden) subcommand.
const WorkerName = "probe-worker"

// Command is the probe worker as a program: orders on standard input, attempts on standard output.
func Command() *cobra.Command {
	var fifo bool
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
			// The engine is one goroutine; a second processor would only make the scheduler look for work in vain.
			runtime.GOMAXPROCS(1)
			return Work(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&fifo, "fifo", false, "run in the real-time scheduling class SCHED_FIFO (needs CAP_SYS_NICE)")
	return c
}

// RealTime puts every thread of this process into the scheduling class SCHED_FIFO with the lowest priority, which
// keeps everything that is not real-time from delaying the start of attempts. Threads that start later inherit it.
// Use it in the lab's VM; on a host, a busy engine would keep ordinary programs from running.
func RealTime() error {
	const rounds = 10 // a thread may have started a thread while we looked; soon all of them are ours
	for range rounds {
		changed, err := realTimeOnce()
		if err != nil || changed == 0 {
			return err
		}
	}
	return fmt.Errorf("setting SCHED_FIFO: threads without it still appear after %d rounds", rounds)
}

// realTimeOnce returns how many threads it had to change.
func realTimeOnce() (int, error) {
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
		if err == unix.ESRCH || (err == nil && now.Policy == unix.SCHED_FIFO) {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if err := unix.SchedSetAttr(tid, &attr, 0); err == unix.ESRCH {
			continue
		} else if err != nil {
			return changed, fmt.Errorf("setting SCHED_FIFO for a thread of this process: %w (it needs CAP_SYS_NICE)", err)
		}
		changed++
	}
	return changed, nil
}
