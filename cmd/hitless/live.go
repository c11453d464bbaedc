package main

import (
	"fmt"
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
	f.StringVar(&l.Target, "target", "loadbalancer", "where the lanes go on a live cluster: loadbalancer, or nodeport (a node's address)")
	f.DurationVar(&l.Patience, "address-within", 3*time.Minute, "how long a live cluster may take to give the Service its address")
	f.BoolVar(&l.DryRun, "dry-run", false, "say what would be done to the live cluster, and stop")
	f.BoolVar(&l.AllowDisruption, "allow-disruption", false, "let restart, upgrade and drain change what is not their own on a live cluster: its proxy's DaemonSet, a node, the pods on it")
}

// ofLab are the flags that only a lab can obey.
var ofLab = []string{"subject", "controlplane", "kernel", "clock", "nodes", "binaries", "deadline", "cold", "stop-at"}

// onCluster takes a live cluster into the options, if one is named.
func onCluster(f *pflag.FlagSet, o *run.Options, l *run.Live) error {
	if l.Kubeconfig == "" {
		for _, name := range []string{"context", "target", "address-within", "dry-run", "allow-disruption"} {
			if f.Changed(name) {
				return fmt.Errorf("--%s is for live clusters; name one with --kubeconfig FILE", name)
			}
		}
		return nil
	}
	var wrong []string
	for _, name := range ofLab {
		if f.Changed(name) {
			wrong = append(wrong, "--"+name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: with --kubeconfig the cluster decides that; leave it out", strings.Join(wrong, ", "))
	}
	o.Live = l
	return nil
}

func cleanCommand() *cobra.Command {
	var l run.Live
	var within time.Duration
	cmd := &cobra.Command{
		Use: "clean --kubeconfig FILE", Short: "Take away what runs have left on a live cluster, also killed ones, and put back what they changed", Args: cobra.NoArgs,
		Long: `Take away what runs have left on a live cluster, and put back what they changed: nodes that they cordoned or tainted and
DaemonSets that they gave another image, known by the annotation hitless/put-back, and every namespace that a run of hitless
has made, known by the label app.kubernetes.io/managed-by=hitless. That ends runs that are still under way, whoever started
them; --dry-run lists what it would do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run.Clean(cmd.Context(), l, within, func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.Kubeconfig, "kubeconfig", "", "of the cluster, a `FILE`")
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.BoolVar(&l.DryRun, "dry-run", false, "list what would be put back and deleted, and stop")
	f.DurationVar(&within, "within", 3*time.Minute, "how long to wait for each to be gone")
	return cmd
}
