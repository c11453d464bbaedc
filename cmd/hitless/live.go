package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/run"
)

// liveFlags are those of a run on a live cluster.
func liveFlags(f *pflag.FlagSet, l *run.Live) {
	f.StringVar(&l.Kubeconfig, "kubeconfig", "", "run on the cluster of this kubeconfig, a `FILE`, instead of in a lab: docs/clusters.md")
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.BoolVar(&l.InCluster, "in-cluster", false, "run on the cluster that this pod is in, with its service account: docs/deploy.md")
	f.StringVar(&l.Target, "target", "loadbalancer", "where the lanes go on a live cluster: loadbalancer, or nodeport (a node's address)")
	f.DurationVar(&l.Patience, "address-within", 3*time.Minute, "how long a live cluster may take to give the Service its address")
	f.BoolVar(&l.DryRun, "dry-run", false, "say what would be done to the live cluster, and stop")
	f.BoolVar(&l.AllowDisruption, "allow-disruption", false, "let restart, upgrade and drain change what is not their own on a live cluster: its proxy's DaemonSet, a node, the pods on it")
	l.Fleet = &run.LiveFleet{}
	f.IntVar(&l.Fleet.Workers, "fleet", 0, "probes in the live cluster, besides those of this machine: pods of a Deployment, to the Service's cluster IP")
	f.BoolVar(&l.Fleet.Everywhere, "fleet-everywhere", false, "one such probe on each node, by a DaemonSet, instead of a number")
	f.BoolVar(&l.Fleet.OnHost, "fleet-on-host", false, "such probes in the network of their nodes (hostNetwork)")
	f.StringVar(&l.Fleet.Image, "fleet-image", "", "`IMAGE` with hitless that the live cluster can pull")
	f.Float64Var(&l.Fleet.Rate, "fleet-rate", 0, "new connections per second of each such probe (default 10)")
}

// ofLab are the flags that only a lab can obey.
var ofLab = []string{"subject", "controlplane", "kernel", "clock", "nodes", "binaries", "deadline", "cold", "stop-at"}

// onCluster takes a live cluster into the options, if one is named.
func onCluster(f *pflag.FlagSet, o *run.Options, l *run.Live) error {
	if !l.Named() {
		for _, name := range []string{"context", "target", "address-within", "dry-run", "allow-disruption", "fleet", "fleet-everywhere", "fleet-on-host", "fleet-image", "fleet-rate"} {
			if f.Changed(name) {
				return fmt.Errorf("--%s is for live clusters; name one with --kubeconfig FILE", name)
			}
		}
		return nil
	}
	if err := onlyOne(f); err != nil {
		return err
	}
	var wrong []string
	for _, name := range ofLab {
		if f.Changed(name) && (name != "nodes" || l.Kind == "") { // a cluster that is made has as many as are asked for
			wrong = append(wrong, "--"+name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: on a live cluster the cluster decides that; leave it out", strings.Join(wrong, ", "))
	}
	o.Live = l
	return nil
}

// onlyOne refuses a call that names its cluster in two ways.
func onlyOne(f *pflag.FlagSet) error {
	var named []string
	for _, name := range []string{"kubeconfig", "in-cluster", "kind"} {
		if f.Changed(name) {
			named = append(named, "--"+name)
		}
	}
	switch {
	case len(named) > 1:
		return fmt.Errorf("%s: each of them names the cluster; give one", strings.Join(named, ", "))
	case f.Changed("context") && !f.Changed("kubeconfig"):
		return fmt.Errorf("--context is of a kubeconfig, and %s needs none; leave it out", named[0])
	}
	return nil
}

// runOnEach runs on a new cluster of each version, and returns an error with the exit code of the worst run. The results of more
// than one go to folders below --out.
func runOnEach(cmd *cobra.Command, o run.Options, versions []string) error {
	out := cmp.Or(o.Out, filepath.Join("out", o.Scenario))
	worst, live := exitPass, *o.Live
	for _, version := range versions {
		if len(versions) > 1 {
			o.Out = filepath.Join(out, version)
		}
		live.Kind = version
		o.Live = &live
		err := runAndConclude(cmd, o)
		if len(versions) == 1 || cmd.Context().Err() != nil {
			return err
		}
		if err != nil && err.Error() != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "hitless: Kubernetes %s: %v\n", version, err)
		}
		worst = max(worst, exitCode(cmd.Context(), err))
	}
	if worst != exitPass {
		return exitError{code: worst}
	}
	return nil
}

func cleanCommand() *cobra.Command {
	var l run.Live
	var within time.Duration
	cmd := &cobra.Command{
		Use: "clean --kubeconfig FILE|--in-cluster", Short: "Take away what runs have left on a live cluster, also killed ones, and put back what they changed", Args: cobra.NoArgs,
		Long: `Take away what runs have left on a live cluster, and put back what they changed: nodes that they cordoned or tainted and
DaemonSets that they gave another image, known by the annotation hitless/put-back, and every namespace that a run of hitless
has made, known by the label app.kubernetes.io/managed-by=hitless. That ends runs that are still under way, whoever started
them; --dry-run lists what it would do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := onlyOne(cmd.Flags()); err != nil {
				return err
			}
			return run.Clean(cmd.Context(), l, within, func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.Kubeconfig, "kubeconfig", "", "of the cluster, a `FILE`")
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.BoolVar(&l.InCluster, "in-cluster", false, "the cluster that this pod is in, with its service account")
	f.BoolVar(&l.DryRun, "dry-run", false, "list what would be put back and deleted, and stop")
	f.DurationVar(&within, "within", 3*time.Minute, "how long to wait for each to be gone")
	return cmd
}
