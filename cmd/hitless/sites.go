package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

// siteFlags are the flags of a command by the kinds of sites that have them. A flag in none of the sets belongs to all sites.
type siteFlags map[run.Kind]*pflag.FlagSet

// addSiteFlags adds the flags of all sites to a command that can run on each of them.
func addSiteFlags(f *pflag.FlagSet, o *run.Options) siteFlags {
	lab, cluster, kind := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	subjectFlag(lab, o)
	stopFlag(lab, o)
	captureFlag(lab, o)
	guestKernelFlag(lab, o)
	labFlags(lab, o)
	o.Live = &site.LiveOptions{}
	clusterFlags(cluster, o.Live)
	kind.AddFlagSet(cluster)
	kind.AddFlag(lab.Lookup("nodes"))
	f.AddFlagSet(lab)
	f.AddFlagSet(cluster)
	return siteFlags{run.InLab: lab, run.InCluster: cluster, run.InKind: kind}
}

// check refuses flags that the chosen site does not have.
func (s siteFlags) check(f *pflag.FlagSet, chosen run.Kind) error {
	var wrong []string
	f.Visit(func(flag *pflag.Flag) {
		owned := false
		for _, set := range s {
			owned = owned || set.Lookup(flag.Name) != nil
		}
		if owned && s[chosen].Lookup(flag.Name) == nil {
			wrong = append(wrong, "--"+flag.Name)
		}
	})
	advice := map[run.Kind]string{run.InLab: "only for live clusters; name one with --kubeconfig FILE",
		run.InCluster: "on a live cluster the cluster decides that; leave it out", run.InKind: "on a live cluster the cluster decides that; leave it out"}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %s", strings.Join(wrong, ", "), advice[chosen])
	}
	return nil
}

// clusterFlags are the flags of runs on a live cluster, without those that name the cluster.
func clusterFlags(f *pflag.FlagSet, l *site.LiveOptions) {
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.StringVar(&l.Target, "target", site.TargetLoadBalancer, "address that is measured on a live cluster: loadBalancer, or nodePort (at a node's address)")
	f.DurationVar(&l.Patience, "address-within", 3*time.Minute, "how long a live cluster may take to give the Service its address")
	f.BoolVar(&l.DryRun, "dry-run", false, "describe what would be done to the live cluster, and stop")
	f.BoolVar(&l.AllowDisruption, "allow-disruption", false, "permit restart, upgrade and drain to change objects of the live cluster that are not their own: its proxy's DaemonSet, a node, the pods on it")
	l.Fleet = &site.FleetOptions{}
	f.IntVar(&l.Fleet.Workers, "fleet", 0, "probes in the live cluster, in addition to those of this machine: pods of a Deployment, to the Service's cluster IP")
	f.BoolVar(&l.Fleet.Everywhere, "fleet-everywhere", false, "one probe pod on each node, by a DaemonSet, instead of --fleet N")
	f.BoolVar(&l.Fleet.OnHost, "fleet-on-host", false, "run the pods of --fleet or --fleet-everywhere in the network of their nodes (hostNetwork)")
	f.StringVar(&l.Fleet.Image, "fleet-image", "", "`IMAGE` with hitless that the live cluster can pull")
	f.Float64Var(&l.Fleet.Rate, "fleet-rate", 0, "new connections per second of each of these pods (default 10)")
	flags.Words(f, "target", site.TargetLoadBalancer, site.TargetNodePort)
}

// chooseSite checks the flags that name a site, and those of other sites.
func (s siteFlags) chooseSite(f *pflag.FlagSet, o run.Options) error {
	chosen := o.Site()
	if chosen != run.InLab {
		if err := onlyOne(f); err != nil {
			return err
		}
	}
	return s.check(f, chosen)
}

// onlyOne refuses flags that name the cluster in two ways.
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
	case f.Changed("context") && len(named) == 0:
		return errors.New("--context needs --kubeconfig FILE; give both")
	case f.Changed("context") && !f.Changed("kubeconfig"):
		return fmt.Errorf("--context needs --kubeconfig, and %s has no kubeconfig; leave it out", named[0])
	}
	return nil
}

// runOnEach runs on a new cluster of each version. The error has the exit code of the worst run. The results of several versions go
// to folders below --out.
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
		worst = worse(worst, exitCode(cmd.Context(), err))
	}
	if worst != exitPass {
		return exitError{code: worst}
	}
	return nil
}

func cleanCommand() *cobra.Command {
	var l site.LiveOptions
	var within time.Duration
	cmd := &cobra.Command{
		Use: "clean --kubeconfig FILE|--in-cluster", Short: "Delete and restore what runs, also killed ones, have left on a live cluster", Args: cobra.NoArgs,
		Long: `Delete and restore what runs have left on a live cluster. Nodes that runs have cordoned or tainted and DaemonSets whose image
they have changed are restored; the annotation hitless/put-back marks them. Namespaces of runs are deleted; the label
app.kubernetes.io/managed-by=hitless marks them. That ends runs that are under way too. --dry-run lists the actions.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := onlyOne(cmd.Flags()); err != nil {
				return err
			}
			return site.Clean(cmd.Context(), l, within, func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster")
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.BoolVar(&l.InCluster, "in-cluster", false, "the cluster that this pod is in, with its service account")
	f.BoolVar(&l.DryRun, "dry-run", false, "list what would be restored and deleted, and stop")
	f.DurationVar(&within, "within", 3*time.Minute, "how long to wait until each namespace is deleted")
	return cmd
}
