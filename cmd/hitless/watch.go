package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/clusterwatch"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/probes/watch"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

func watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Measure any address, or a cluster's Services, in the background while something else changes them",
		Long: `Measure any address, or the Services of a cluster, in the background while something else changes them: a script, a
pipeline, another shell.

"watch start" returns when the detector is proved and the change may be made. From then on a process of its own
measures, without a terminal: it survives the shell that started it. "watch stop" ends it in an orderly way and gives
the report and the exit code that "hitless probe" gives (0 pass, 1 fail, 3 invalid). Both meet in the folder --out.`,
		Example: `  hitless watch start 203.0.113.10:80
  kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=…
  hitless watch stop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(watchStart(), watchStop(), watchStatus(), watchResume(), hidden(watchWorker()))
	return cmd
}

// watchOptions are those of a watch of one address, or of the Services of a cluster.
type watchOptions struct {
	clusterwatch.Options
	target, source, sign string
	sites                siteFlags
}

func watchStart() *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "start HOST:PORT | --kubeconfig FILE",
		Short: "Start to measure, and return when the change may be made",
		Long: `Start to measure, and return when the change may be made: after the baseline and the proof of the detector, which take
3.5 seconds as with "hitless probe". What cannot be measured (the target does not answer, the rate needs too many
ports, the folder cannot be written) is an error here, and nothing goes on in the background. So is a watch that runs in
the same folder, and one that was killed there: "watch stop" makes a report of what that had recorded.

With --kubeconfig it measures the external addresses of a cluster's Services, follows those that appear, change and
disappear, and explains losses by what the API shows. An attempt is a new connection without a request (tcp-connect),
unless --protocol or --path says otherwise. Only TCP ports are probed.

The record is thinned, so that it can go on for days: attempts stand one by one near failures and events, and elsewhere
as counts and histograms of each second. What is measured is recorded some seconds after it happened. The log is
watch.log and the state is watch.json in --out, beside the results.`,
		Example: `  hitless watch start 203.0.113.10:80
  hitless watch start --kubeconfig ~/.kube/production --selector tier=edge --listen 127.0.0.1:9753`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.fill(cmd, args); err != nil {
				return err
			}
			program, err := thisProgram()
			if err != nil {
				return err
			}
			worker := watch.Worker{Program: program, Args: workerArgs(cmd, args)}
			if o.Kubeconfig != "" {
				if worker.Resume, err = resumeArgs(cmd); err != nil {
					return err
				}
			}
			return watch.Start(cmd.Context(), o.name(args), o.Out, worker, newScreen(cmd.ErrOrStderr()).message)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// defaultsText tells the defaults of a flag in its help, in the place of the one that the flag has. zero is the zero value of its type.
func defaultsText(f *pflag.FlagSet, name, zero, text string) {
	flag := f.Lookup(name)
	flag.Usage += " (default " + text + ")"
	flag.DefValue = zero
}

func thisProgram() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program's file, which is to measure: %w", err)
	}
	return program, nil
}

func (o *watchOptions) flags(f *pflag.FlagSet) {
	sessionFlags(f, &o.Options.Options, &o.source, record.RecordThinned)
	defaultsText(f, "rate", "0", fmt.Sprintf("100; with --kubeconfig %d for each port and address", clusterwatch.DefaultRate))
	defaultsText(f, "protocol", "", probes.ProtocolTCPNew+"; with --kubeconfig "+probes.ProtocolTCPDial)
	f.DurationVar(&o.Duration, "duration", 0, "how long to measure after the baseline at most; 0 is until \"hitless watch stop\"")
	flags.Allow(f, "duration", flags.Zero)
	signFlag(f, &o.sign)
	outOfWatch(f, &o.Out)
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "measure the Services of the live cluster of this `FILE`")
	cluster := pflag.NewFlagSet("", pflag.ContinueOnError)
	cluster.StringVar(&o.Context, "context", "", "context of the kubeconfig (default its current one)")
	cluster.StringVar(&o.Namespace, "namespace", "", "only Services of this namespace (default all)")
	cluster.StringVar(&o.Selector, "selector", "", "only Services with these labels, such as tier=edge (default all)")
	cluster.StringVar(&o.target, "target", targetExternal, "where the Services are measured: external (load balancers and externalIPs), or nodePort (on each node)")
	cluster.StringVar(&o.Proxy, "proxy", clusterwatch.DefaultProxy, "`NAMESPACE/NAME` of the proxy's DaemonSet, whose pods explain losses")
	cluster.StringVar(&o.Listen, "listen", "", "serve /metrics for Prometheus on this `HOST:PORT` while the watch of a cluster runs")
	flags.Words(cluster, "target", targetExternal, targetNodePort)
	flags.Place(f, "kubeconfig")
	f.AddFlagSet(cluster)
	o.sites = siteFlags{run.InLab: pflag.NewFlagSet("", pflag.ContinueOnError), run.InCluster: cluster} // an address has none of them, like a lab
}

// The values of --target.
const (
	targetExternal = "external"
	targetNodePort = "nodePort"
)

// fill checks the flags, and sets what they cannot set themselves.
func (o *watchOptions) fill(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	if o.Kubeconfig == "" {
		if err := o.sites.check(f, run.InLab); err != nil {
			return err
		}
		if err := oneTarget(cmd, args); err != nil {
			return fmt.Errorf("%w; or name a cluster with --kubeconfig FILE", err)
		}
		return fillSession(&o.Options.Options, cmd, "watch start", args[0], o.source, o.sign)
	}
	if len(args) > 0 {
		return fmt.Errorf("%s and --kubeconfig both say what to measure; give one", args[0])
	}
	if !f.Changed("rate") {
		o.Rate = clusterwatch.DefaultRate
	}
	if !f.Changed("protocol") && !f.Changed("path") {
		o.Protocol = probes.ProtocolTCPDial
	}
	o.NodePorts = o.target == targetNodePort
	return fillSession(&o.Options.Options, cmd, "watch start", "", o.source, o.sign)
}

// name is what the watch is of, for its state.
func (o *watchOptions) name(args []string) string {
	if o.Kubeconfig == "" {
		return args[0]
	}
	return "the Services of " + o.Kubeconfig
}

func outOfWatch(f *pflag.FlagSet, out *string) {
	f.StringVar(out, "out", filepath.Join("out", "watch"), "folder of the watch and its results")
	flags.Aside(f, "out")
}

// workerArgs are the arguments of the worker, with the same target and flags.
func workerArgs(cmd *cobra.Command, args []string) []string {
	words := []string{"watch", "worker"}
	cmd.Flags().Visit(func(f *pflag.Flag) { words = append(words, flagWords(f, asGiven)...) })
	if len(args) > 0 {
		words = append(append(words, "--"), args...)
	}
	return words
}

// resumeArgs are the arguments of a worker that goes on with the watch of a cluster, without its folder. Their paths are absolute.
func resumeArgs(cmd *cobra.Command) (words []string, err error) {
	words = []string{"watch", "worker"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "out" {
			return
		}
		words = append(words, flagWords(f, func(f *pflag.Flag, value string) string {
			if flags.IsPlace(f) {
				path, failed := filepath.Abs(value)
				value, err = path, errors.Join(err, failed)
			}
			return value
		})...)
	})
	if err != nil {
		return nil, fmt.Errorf("finding the files that the watch needs after a kill: %w; give whole paths", err)
	}
	return words, nil
}

// watchWorker is the process that measures.
func watchWorker() *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use: "worker", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.fill(cmd, args); err != nil {
				return err
			}
			return watch.Work(cmd.Context(), o.Options.Options, o.run, cmd.ErrOrStderr())
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&o.Resume, strings.TrimPrefix(watch.ResumeFlag, "--"), false, "go on with the record of a killed watch")
	return cmd
}

// run measures what the options name.
func (o *watchOptions) run(ctx context.Context, s session.Options) (*session.Result, error) {
	if o.Kubeconfig == "" {
		return session.Run(ctx, s)
	}
	o.Options.Options = s
	return clusterwatch.Run(ctx, o.Options)
}

func watchResume() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Go on with the watch of a cluster that was killed",
		Long: `Go on with the watch of a cluster that was killed, or whose machine went down, in the same record. What it had recorded
stays; the time until it measures again is recorded as missing. A watch with missing time never passes. It ends when it
would have ended without the kill (--duration).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := thisProgram()
			if err != nil {
				return err
			}
			return watch.Resume(cmd.Context(), out, program, newScreen(cmd.ErrOrStderr()).message)
		},
	}
	outOfWatch(cmd.Flags(), &out)
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
			defer fmt.Fprintf(cmd.OutOrStdout(), "report           %s\n", filepath.Join(r.Dir, reports.PageFile))
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
