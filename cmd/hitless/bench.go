package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
)

// benchProxierCommand is what `make bench-proxier` calls.
func benchProxierCommand() *cobra.Command {
	var o run.Options
	var subjects []string
	var services []int
	var repeat int
	cmd := &cobra.Command{
		Use:   "bench-proxier",
		Short: "Measure what proxies cost: time from the API to the kernel, CPU, memory, netlink messages",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = newScreen(cmd.ErrOrStderr()).report
			what := bench.Plan{Services: services, Repeat: repeat}
			for _, text := range subjects {
				s, err := bench.ParseSubject(text)
				if err != nil {
					return err
				}
				what.Subjects = append(what.Subjects, s)
			}
			if _, err := bench.ParsePlan(what.Parameters()); err != nil {
				return err
			}
			results, err := run.Bench(cmd.Context(), o, what)
			if results != nil {
				fmt.Fprint(cmd.OutOrStdout(), bench.Markdown(results.Rows))
			}
			if err != nil {
				return err
			}
			if results == nil {
				return fmt.Errorf("the benchmark in %s ended without a row", o.Out)
			}
			return results.Write(o.Out + ".json")
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&subjects, "subject", bench.DefaultSubjects, "proxies, with ?minSync=DURATION for another time between passes")
	f.IntSliceVar(&services, "services", []int{100, 1000, 10000}, "numbers of Services, ascending")
	f.IntVar(&repeat, "repeat", 3, "how often each change is measured, 1 to 8; its time is the median")
	f.StringVar(&o.Clock, "clock", "auto", "virtual, real or auto (virtual)")
	flags.Words(f, "clock", "auto", "virtual", "real")
	programsFlag(f, &o.Programs)
	guestKernelFlag(f, &o)
	f.BoolVar(&o.Cold, "cold", false, "boot the guest anew, even where a saved one would do; the result is the same")
	seedFlag(f, &o, "seed of the guest's random numbers")
	f.StringVar(&o.Out, "out", filepath.Join("out", "bench", "proxier"), "folder for logs; the rows go to a file of that name with .json")
	return cmd
}
