package probes

import (
	"runtime"

	"github.com/spf13/cobra"
)

// WorkerName is the name of the worker's (hidden) subcommand.
const WorkerName = "probe-worker"

// Command returns the probe worker as a command: orders on standard input, attempts on standard output.
func Command() *cobra.Command {
	var fifo, short bool
	c := &cobra.Command{
		Use:    WorkerName,
		Short:  "run lanes by orders on standard input, write attempts to standard output",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if fifo {
				if err := RealTime(); err != nil {
					return err
				}
			}
			if short {
				if err := Prompt(); err != nil {
					return err
				}
			}
			// The engine is one goroutine: with more processors the scheduler would search for work in vain.
			runtime.GOMAXPROCS(1)
			return Work(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&fifo, "fifo", false, "run in the real-time scheduling class SCHED_FIFO (needs CAP_SYS_NICE)")
	c.Flags().BoolVar(&short, "short-turns", false, "request short time slices, which are scheduled sooner (Linux 6.12), and stay in memory where the limit allows it")
	return c
}
