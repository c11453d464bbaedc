package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

func runCommand() *cobra.Command {
	var o run.Options
	var set []string
	var kinds []string
	var sites siteFlags
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario against a subject and judge the measurement",
		Long: `Run a scenario against a subject, by default in a lab, and judge the measurement.

The lab is a virtual machine with a stock kernel (--guest-kernel names it) and, by default, a virtual clock: the same call with the same seed gives
the same history, byte for byte. With --kernel host the lab is in namespaces of this machine's own kernel, without root where the
system allows it, with the real clock; such runs are not repeatable. With --kubeconfig the scenario runs on a live cluster,
in a namespace of its own that is deleted at the end. With --in-cluster it runs on the cluster of this pod. With --kind it runs on a cluster
that the program kind makes, and that is deleted at the end.

Results go to --out: report.html, report.json, junit.xml, summary.md, history/, logs/ and host.json, and with --openmetrics openmetrics.txt.

On a terminal the last line shows, about once a second, the run's own time and its end, dropped and delayed connections,
the stage, connections per second, and the speed relative to wall time. The end is that of the earlier run in the same folder, or about what
the plan says. Elsewhere only phases and steps are shown, a line each.

Exit codes: 0, pass; 1, fail; 2, wrong usage or environment, or skipped; 3, the measurement cannot be trusted; 130, interrupted.`,
		Example: `  hitless run rollout
  hitless run rollout --set trafficPolicy=Local --set replicas=1 --set terminatingFallback=off
  hitless run rollout --subject kube-proxy@v1.26.0/iptables --seed 7
  hitless run rollout --subject kube-proxy@v1.37.1/nftables --kernel host --rate 50
  hitless run rollout --guest-kernel debian-13
  hitless run rollout --kubeconfig ~/.kube/staging
  hitless run restart --kubeconfig ~/.kube/staging --set proxy=kube-system/ds/kube-proxy --dry-run
  hitless run rollout --kind v1.26.0 --kind v1.25.3 --target nodePort --set trafficPolicy=Cluster
  hitless run fault --controlplane replay --set node=node-2 --set faultDuration=700ms`,
		Args: exactScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fill(&o, cmd, args[0], set); err != nil {
				return err
			}
			if len(kinds) > 0 {
				o.Live.Kind = kinds[0]
			}
			if err := sites.chooseSite(cmd.Flags(), o); err != nil {
				return err
			}
			if len(kinds) > 0 {
				return runOnEach(cmd, o, kinds)
			}
			return runAndConclude(cmd, o)
		},
	}
	f := cmd.Flags()
	seedFlag(f, &o, "seed of the run; the same seed repeats the same history")
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/SCENARIO)")
	rateFlag(f, &o)
	setFlag(f, &set)
	sites = addSiteFlags(f, &o)
	f.StringVar(&o.Live.Kubeconfig, "kubeconfig", "", "run on the cluster of this kubeconfig, a `FILE`, instead of in a lab: docs/clusters.md")
	f.BoolVar(&o.Live.InCluster, "in-cluster", false, "run on the cluster that this pod is in, with its service account: docs/deploy.md")
	f.StringArrayVar(&kinds, "kind", nil, "run on a cluster of this `VERSION` of Kubernetes that the program kind makes and deletes, such as v1.26.0; --nodes is its number of nodes for pods; repeat for more versions: docs/clusters.md")
	signFlag(f, &o.Sign)
	verboseFlag(f)
	budgetFlag(f, &o)
	f.BoolVar(&o.OpenMetrics, "openmetrics", false, "write openmetrics.txt too, samples with time stamps for a time-series database: docs/reports.md")
	return cmd
}

// runAndConclude runs, prints the report, and turns its verdict into an exit code.
func runAndConclude(cmd *cobra.Command, o run.Options) error {
	result, err := run.Run(cmd.Context(), o)
	return concludeRun(cmd, o, result, err)
}

// concludeRun prints what a run has given.
func concludeRun(cmd *cobra.Command, o run.Options, result *run.Result, err error) error {
	if err == nil && result.Stopped != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "stopped at %s\nlooked           %s\nhistory          %s/history, the same until then as without the stop\n", o.StopAt, result.Stopped, result.Dir)
		return nil
	}
	if err == nil && o.StopAt > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "the run was over before %s: it did not stop\n", o.StopAt)
	}
	if result != nil && result.Dir != "" {
		defer printPlace(cmd, result)
		if result.Report == nil && result.Partial == nil { // a report prints the hashes
			defer printHashes(cmd, result)
		}
	}
	if err != nil {
		if failed := printPartial(cmd, result); failed != nil {
			return errors.Join(err, failed)
		}
		return err
	}
	if result.Report == nil {
		return nil
	}
	return conclude(cmd, result.Report, result.Origin())
}

func subjectFlag(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.Subject, "subject", "bundled", "proxy under test, a `SUBJECT`: bundled, kube-proxy@VERSION/MODE, cilium@VERSION or exec:FILE; hitless subjects lists them")
}

func seedFlag(f *pflag.FlagSet, o *run.Options, usage string) {
	o.Seed = 1
	f.Var((*seedValue)(&o.Seed), "seed", usage+"; any whole number of 64 bits other than 0")
	flags.Allow(f, "seed", flags.Negative, flags.Zero) // its type says more about 0
}

// seedValue is a seed as a flag. 0 is refused, because in run.Options it stands for the default.
type seedValue int64

// Set reads the seed.
func (s *seedValue) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 {
		return errors.New("give a whole number from -2^63 to 2^63-1, other than 0")
	}
	*s = seedValue(n)
	return nil
}

// String returns the seed in decimal.
func (s *seedValue) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type names the kind of value in help texts.
func (*seedValue) Type() string { return "int" }

func rateFlag(f *pflag.FlagSet, o *run.Options) {
	f.Float64Var(&o.Rate, "rate", 100, "new connections per second, up to 5000")
}

func budgetFlag(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.Budget, "budget", "", "YAML `FILE` with the loss that is accepted besides the unavoidable one of the scenario: docs/budgets.md")
}

func stopFlag(f *pflag.FlagSet, o *run.Options) {
	f.DurationVar(&o.StopAt, "stop-at", 0, "stop at this time of the run, as reports have them, and write what is in the kernels of the lab into the run's folder: docs/timeline.md")
}

func guestKernelFlag(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.GuestKernel, "guest-kernel", "", guestKernelUsage+" (default "+vm.DefaultKernel+")")
}

var guestKernelUsage = "kernel of the VM, a `KERNEL`: " + strings.Join(vm.KernelNames(), ", ") +
	", FILE.deb or FILE.deb,FILE.deb, or a folder with vmlinuz and modules: docs/kernels.md"

func captureFlag(f *pflag.FlagSet, o *run.Options) {
	f.BoolVar(&o.Capture, "capture", false, "record the packets that open, close, refuse and reject connections, for hitless verify: docs/verify.md")
	f.BoolVar(&o.Loop, "loop", false, "also request the Service with this machine's curl once a second, as one would by hand, for hitless verify: docs/verify.md")
}

// commonFlags are the flags of commands that run scenarios in a lab.
func commonFlags(f *pflag.FlagSet, o *run.Options, set *[]string) {
	labFlags(f, o)
	setFlag(f, set)
}

func setFlag(f *pflag.FlagSet, set *[]string) {
	f.StringArrayVar(set, "set", nil, "a parameter of the scenario, `KEY=VALUE`; hitless scenarios lists them")
}

// labFlags are the flags of runs in a lab, without --subject, --guest-kernel and --stop-at, which some commands lack or have in another way.
func labFlags(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.ControlPlane, "controlplane", record.ControlKube, "kube (real Kubernetes programs) or replay (small stand-in, starts in seconds)")
	f.StringVar(&o.Kernel, "kernel", "auto", "where the lab runs: vm, host (namespaces of this machine's kernel, with the real clock), or auto: vm for the virtual clock, host for the real one if it can")
	f.StringVar(&o.Clock, "clock", "auto", "clock of the lab: virtual, real or auto, which is real with --kernel host and virtual otherwise")
	f.BoolVar(&o.Cold, "cold", false, "boot the guest instead of resuming a snapshot; the history is the same")
	f.IntVar(&o.Nodes, "nodes", 3, "nodes of the lab, 1 to 50")
	programsFlags(f, o)
	f.DurationVar(&o.Deadline, "deadline", 0, "wall time after which a run is ended as invalid (default by scenario)")
	flags.Words(f, "controlplane", record.ControlKube, record.ControlReplay)
	flags.Words(f, "kernel", "auto", "vm", "host")
	flags.Words(f, "clock", "auto", "virtual", "real")
}

// programsFlags are the flags that tell where upstream's programs come from.
func programsFlags(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.Binaries, "binaries", "", "folder of ready programs (kube-apiserver, etcd, ...) to use instead of building or downloading them")
	flags.Aside(f, "binaries")
	programsFlag(f, &o.Programs)
}

func programsFlag(f *pflag.FlagSet, p *build.Programs) {
	f.StringVar((*string)(p), "programs", string(build.Built), "upstream's programs: built here from their modules, or released: downloaded, with the published checksums: docs/subjects.md")
	flags.Words(f, "programs", string(build.Built), string(build.Released))
}

// fill sets the options that are not flags.
func fill(o *run.Options, cmd *cobra.Command, scenario string, set []string) (err error) {
	shown := newScreen(cmd.ErrOrStderr())
	if shown.width() > 0 { // without a terminal no last line shows the expected length
		shown.expect = expected(cmp.Or(o.Out, filepath.Join("out", scenario)), scenario)
	}
	o.Scenario, o.Progress = scenario, shown.report
	o.Set, err = parseSet(set)
	return err
}

func exactScenario(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one scenario, %d were given; `hitless scenarios` lists them", len(args))
	}
	return nil
}

func parseSet(pairs []string) (map[string]string, error) {
	set := map[string]string{}
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		_, again := set[key]
		switch {
		case !found || key == "":
			return nil, fmt.Errorf("--set %s: give key=value", pair)
		case value == "":
			return nil, fmt.Errorf("--set %s: the value is empty; give one, or leave the key out for its default", pair)
		case again:
			return nil, fmt.Errorf("--set %s: the key is given twice; give it once", pair)
		}
		set[key] = value
	}
	return set, nil
}

func printHashes(cmd *cobra.Command, r *run.Result) {
	fmt.Fprintf(cmd.OutOrStdout(), "inputs sha256    %s\nhistory sha256   %s\n", r.InputsSha256, r.HistorySha256)
}

func printPlace(cmd *cobra.Command, r *run.Result) {
	if r.Report != nil || r.Partial != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "report           %s\n", filepath.Join(r.Dir, reports.PageFile))
	}
}

// printPartial prints the report of a run that ended early, if there is one.
func printPartial(cmd *cobra.Command, r *run.Result) error {
	if r == nil || r.Partial == nil {
		return nil
	}
	return terminalOf(cmd).Write(cmd.OutOrStdout(), r.Partial, r.Origin())
}

// verboseFlag is --verbose, of commands that print a report.
func verboseFlag(f *pflag.FlagSet) {
	f.BoolP("verbose", "v", false, "print the losses of each second, the lanes, the self-test and the hashes too")
	flags.Aside(f, "verbose")
}

// isVerbose reports whether the longer text was asked for. Some commands have no such flag.
func isVerbose(cmd *cobra.Command) bool {
	verbose, _ := cmd.Flags().GetBool("verbose")
	return verbose
}

// terminalOf is how a command prints reports: as wide as its terminal, and in colours unless NO_COLOR is set. Elsewhere lines are not wrapped.
func terminalOf(cmd *cobra.Command) reports.Terminal {
	width := terminalWidth(cmd.OutOrStdout())
	return reports.Terminal{Width: width, Colour: width > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", Verbose: isVerbose(cmd)}
}

// conclude prints a report and turns its verdict into an exit code.
func conclude(cmd *cobra.Command, r *analysis.Report, origin record.Origin) error {
	if err := terminalOf(cmd).Write(cmd.OutOrStdout(), r, origin); err != nil {
		return err
	}
	if code := r.Verdict.ExitCode(); code != exitPass {
		return exitError{code: code}
	}
	return nil
}

// concludeRecord is conclude for a report that was made again from its record.
func concludeRecord(cmd *cobra.Command, h *record.History, r *analysis.Report) error {
	origin, err := h.Origin()
	if err != nil {
		return err
	}
	return conclude(cmd, r, origin)
}
