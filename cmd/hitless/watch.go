package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/probes/watch"
	"github.com/hitless/hitless/record"
)

func watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Measure any address in the background while something else changes it",
		Long: `Measure any address in the background while something else changes it: a script, a pipeline, another shell.

"watch start" returns when the detector is proved and the change may be made. From then on a process of its own
measures, without a terminal: it survives the shell that started it. "watch stop" ends it in an orderly way and gives
the report and the exit code that "hitless probe" gives (0 pass, 1 fail, 3 invalid). Both meet in the folder --out.`,
		Example: `  hitless watch start 203.0.113.10:80
  kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=…
  hitless watch stop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(watchStart(), watchStop(), watchStatus(), hidden(watchWorker()))
	return cmd
}

func watchStart() *cobra.Command {
	var o session.Options
	var source, sign string
	cmd := &cobra.Command{
		Use:   "start HOST:PORT",
		Short: "Start to measure, and return when the change may be made",
		Long: `Start to measure, and return when the change may be made: after the baseline and the proof of the detector, which take
3.5 seconds as with "hitless probe". What cannot be measured (nobody answers, the rate needs too many ports, the folder
cannot be written) is an error here, and nothing goes on in the background. So is a watch that runs in the same folder,
and one that was killed there: "watch stop" makes a report of what that had recorded.

The record is thinned, so that it can go on for days: attempts stand one by one near failures and events, and elsewhere
as counts and histograms of each second. What is measured is recorded some seconds after it happened. The log is watch.log and the state is watch.json in --out, beside the
results.`,
		Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fillSession(&o, cmd, "watch start", args, source, sign); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program's file, which is to measure: %w", err)
			}
			worker := watch.Worker{Program: program, Args: workerArgs(cmd, args)}
			return watch.Start(cmd.Context(), args[0], o.Out, worker, newScreen(cmd.ErrOrStderr()).message)
		},
	}
	watchFlags(cmd.Flags(), &o, &source, &sign)
	return cmd
}

func watchFlags(f *pflag.FlagSet, o *session.Options, source, sign *string) {
	sessionFlags(f, o, source, record.RecordThinned)
	f.DurationVar(&o.Duration, "duration", 0, "how long to measure after the baseline at most; 0 is until `hitless watch stop`")
	flags.Allow(f, "duration", flags.Zero)
	signFlag(f, sign)
	outOfWatch(f, &o.Out)
}

func outOfWatch(f *pflag.FlagSet, out *string) {
	f.StringVar(out, "out", filepath.Join("out", "watch"), "folder of the watch and its results")
}

// workerArgs are the arguments of the worker, with the same target and flags.
func workerArgs(cmd *cobra.Command, args []string) []string {
	words := []string{"watch", "worker"}
	cmd.Flags().Visit(func(f *pflag.Flag) { words = append(words, "--"+f.Name+"="+f.Value.String()) })
	return append(words, "--", args[0])
}

// watchWorker is the process that measures.
func watchWorker() *cobra.Command {
	var o session.Options
	var source, sign string
	cmd := &cobra.Command{
		Use: "worker HOST:PORT", Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fillSession(&o, cmd, "watch start", args, source, sign); err != nil {
				return err
			}
			return watch.Work(cmd.Context(), o, cmd.ErrOrStderr())
		},
	}
	watchFlags(cmd.Flags(), &o, &source, &sign)
	return cmd
}

func watchStop() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the measurement and give its report",
		Long: `End the measurement and give its report; attempts under way are awaited. The exit code is that of the verdict: 0 pass,
1 fail, 3 invalid. A watch that ended by itself (--duration) gives its report in the same way, once. One that was killed,
or whose machine went down, gets a report of what it had recorded: it is invalid, and says where the record breaks off.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, killed, err := watch.Stop(cmd.Context(), out)
			if err != nil {
				return err
			}
			if killed {
				fmt.Fprintln(cmd.ErrOrStderr(), "hitless: the watch did not end in order: it was killed, or the machine went down; this is the report of its record")
			}
			defer fmt.Fprintf(cmd.OutOrStdout(), "report           %s\n", filepath.Join(r.Dir, "report.html"))
			return conclude(cmd, r.Report, r.Origin)
		},
	}
	outOfWatch(cmd.Flags(), &out)
	return cmd
}

func watchStatus() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the watch; exit code 2 when none is running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := watch.Status(out)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), s)
			return nil
		},
	}
	outOfWatch(cmd.Flags(), &out)
	return cmd
}
