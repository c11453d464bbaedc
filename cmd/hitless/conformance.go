package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/suites/conformance"
)

func conformanceCommand() *cobra.Command {
	var c conformance.Config
	var part, bugs string
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Examine what a Service proxy promises, spec by spec",
		Long: `Examine what a Service proxy promises, spec by spec, and write a report.

Each spec judges the record of a run, by default in a lab with the replay control plane. Specs with the same run share it. A disruption may
lose what its parameters make unavoidable, and nothing else. With --kubeconfig the specs that need only the API run on a live cluster;
the others are skipped, with the reason. A cluster that lacks a permission, an address for the Service or a quota is reported once, and ends
the suite. Results go to --out: conformance.yaml, conformance.html, junit.xml, ginkgo.json, and a
folder in runs for each run.

Exit codes: 0 every spec that ran passed, 1 a spec failed, 2 wrong usage or environment, or every spec was skipped, 3 a spec is invalid or
was not run, 130 interrupted.`,
		Example: `  hitless conformance --subject kube-proxy@v1.37.1/nftables
  hitless conformance --label-filter 'core && rollout' --dry-run
  hitless conformance --subject exec:proxy.yaml --shard 1/3 --out out/shard-1
  hitless conformance --kubeconfig ~/.kube/staging --focus rollout`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	sites := conformanceSites(f, &c.Options)
	f.StringVar(&c.Selection.Labels, "label-filter", "", "a label `FILTER` of Ginkgo, such as 'core && !udp'; --dry-run shows the labels")
	f.StringArrayVar(&c.Selection.Focus, "focus", nil, "only specs whose text matches this regular `EXPRESSION`; again for more")
	f.StringArrayVar(&c.Selection.Skip, "skip", nil, "no specs whose text matches this regular `EXPRESSION`; again for more")
	seedFlag(f, &c.Options, "seed of all runs; the same seed repeats the same histories")
	shardFlag(f, &part, "selected specs")
	f.StringVar(&c.Out, "out", conformance.DefaultOut, "folder for the results")
	f.StringVar(&bugs, "museum", "", "add historical bugs to the report: museum.json of hitless museum run --all with the same subject, a `FILE`")
	signFlag(f, &c.Options.Sign)
	f.BoolVar(&c.DryRun, "dry-run", false, "list the selected specs, their labels and their runs, and stop; a cluster is not asked")
	flags.Aside(f, "label-filter", "focus", "skip", "out", "museum", "dry-run", "address-within")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := sites.chooseSite(f, c.Options); err != nil {
			return err
		}
		if c.Selection.Shard, err = shard.Parse(part); err != nil {
			return err
		}
		if bugs != "" {
			if c.Options.Site() != run.InLab {
				return errors.New("--museum with a live cluster: the museum searches proxies in a lab only; leave one of them out")
			}
			if c.Bugs, err = conformance.ReadBugs(cmd.Context(), bugs, c.Options.Subject); err != nil {
				return err
			}
		}
		if c.Key, err = signingKey(cmd.Context(), c.Options.Sign); err != nil {
			return err
		}
		if c.Sum, err = version.OwnSum(cmd.Context()); err != nil {
			return err
		}
		c.Command = callOf(cmd)
		if c.DryRun {
			return planConformance(cmd, c)
		}
		return examine(cmd, c)
	}
	return cmd
}

// conformanceSites adds the flags of the sites.
func conformanceSites(f *pflag.FlagSet, o *run.Options) siteFlags {
	lab, cluster := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	subjectFlag(lab, o)
	lab.StringVar(&o.ControlPlane, "controlplane", record.ControlReplay, "kube (real Kubernetes programs) or replay (small stand-in, starts in seconds)")
	flags.Words(lab, "controlplane", record.ControlKube, record.ControlReplay)
	programsFlag(lab, &o.Programs)
	guestKernelFlag(lab, o)
	o.Live = &site.LiveOptions{Fleet: &site.FleetOptions{}}
	cluster.StringVar(&o.Live.Context, "context", "", "context of the kubeconfig (default its current one)")
	cluster.StringVar(&o.Live.Target, "target", site.TargetLoadBalancer, "where the lanes go on a live cluster: loadBalancer, or nodePort (a node's address)")
	flags.Words(cluster, "target", site.TargetLoadBalancer, site.TargetNodePort)
	cluster.DurationVar(&o.Live.Patience, "address-within", 3*time.Minute, "how long a live cluster may take to give the Service its address")
	f.AddFlagSet(lab)
	f.AddFlagSet(cluster)
	f.StringVar(&o.Live.Kubeconfig, "kubeconfig", "", "examine the proxy of the cluster of this kubeconfig, a `FILE`, instead of one in a lab: docs/clusters.md")
	flags.Place(f, "kubeconfig")
	return siteFlags{run.InLab: lab, run.InCluster: cluster}
}

// planConformance lists the selected specs.
func planConformance(cmd *cobra.Command, c conformance.Config) error {
	planned, whole, err := c.Plan(cmd.Context())
	if err != nil {
		return err
	}
	if err := c.Options.CheckKubeconfig(); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SPEC\tRUN\tLABELS\tPROMISE")
	runs, skipped := map[*conformance.Run]bool{}, 0
	for _, p := range planned {
		promise := p.Promise + " [" + p.Source + "]"
		if p.Skip != "" {
			promise, skipped = "skipped: "+p.Skip, skipped+1
		} else {
			runs[p.Run] = true
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.Run.Name, strings.Join(p.Labels(), " "), promise)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s, %d of them skipped, in %s; specs that are selected in all shards: %d\n", units.Plural(len(planned), "spec"), skipped, units.Plural(len(runs), "run"), whole)
	return nil
}

// examine runs the suite and turns its report into an exit code.
func examine(cmd *cobra.Command, c conformance.Config) error {
	shown := newScreen(cmd.ErrOrStderr())
	shown.brief = true
	c.Progress = shown.report
	suite, err := conformance.Register(cmd.Context(), c)
	if err != nil {
		return err
	}
	report, err := suite.Run(c.Options.Seed)
	if report != nil {
		printConformance(cmd.OutOrStdout(), report, c.Out)
	}
	if ctx := cmd.Context(); ctx.Err() != nil {
		return ctx.Err()
	}
	var dead *conformance.DeadError
	switch {
	case errors.As(err, &dead):
		return exitError{exitInvalid, err}
	case err != nil:
		return err
	case report.ExitCode() != exitPass:
		return exitError{code: report.ExitCode()}
	}
	return nil
}

func printConformance(out io.Writer, r *conformance.Report, dir string) {
	fmt.Fprintln(out, r.Summary())
	for _, p := range r.Profiles {
		fmt.Fprintf(out, "profile %-8s  %s, %d of %s failed\n", p.Name, p.Result, len(p.Failed), units.Plural(p.Specs(), "spec"))
	}
	if len(r.Bugs) > 0 {
		fmt.Fprintln(out, r.BugsText())
	}
	fmt.Fprintf(out, "report            %s\n", filepath.Join(dir, conformance.PageFile))
}

func conformanceReportCommand() *cobra.Command {
	var out, verify string
	cmd := &cobra.Command{
		Use:   "conformance DIR...",
		Short: "Compare the conformance of many subjects, or join the shards of one call",
		Long: `Read the conformance.yaml of each folder, and print a matrix: features as rows, subjects as columns. All shards of one call are
joined to one report first. With --out the folder gets matrix.html, which names the failed specs and the last version without the
failure, and of a single subject also conformance.yaml, conformance.html, junit.xml and ginkgo.json.`,
		Example: `  hitless report conformance out/bundled out/nftables --out out/matrix
  hitless report conformance out/shard-* --out out/whole`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			key, err := verifyingKey(cmd.Context(), verify)
			if err != nil {
				return err
			}
			all, err := conformance.ReadAll(cmd.Context(), dirs, key)
			if err != nil {
				return err
			}
			m, err := conformance.NewMatrix(all)
			if err != nil {
				return err
			}
			if out != "" {
				folder, err := reports.LockMany(out, "hitless report conformance")
				if err != nil {
					return err
				}
				if err := errors.Join(conformance.WriteMatrix(out, m, all), folder.Close()); err != nil {
					return err
				}
			}
			return m.WriteText(cmd.OutOrStdout())
		},
	}
	verifyFlag(cmd.Flags(), &verify)
	cmd.Flags().StringVar(&out, "out", "", "folder for matrix.html, and for the report of joined shards")
	return cmd
}
