package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

func recordCommand() *cobra.Command {
	var l site.LiveOptions
	var o run.RecordOptions
	cmd := &cobra.Command{
		Use: "record --kubeconfig FILE --out FILE.timeline", Short: "Record the changes of a live cluster as a timeline", Args: cobra.NoArgs,
		Long: `Record the changes of a live cluster as a timeline: of its Services, EndpointSlices, Nodes and Pods, as its API tells it. The
cluster is only read (list and watch). hitless replay repeats the changes with any proxy in the lab, with --controlplane replay.

What is kept is what proxies act upon: addresses, ports, policies, conditions. Annotations, environments, images, secrets and
other labels are never kept. With --anonymous names, addresses and node ports are replaced too. Equal ones get equal replacements.
The new addresses are none of the lab's.

The timeline also states a rate of probes. It is lower for longer recordings, so that the record of a replay fits: 10 a second for --for 24h.

It ends after --for, or by Ctrl-C, with a whole timeline either way. Until then its name is FILE.timeline.part; after a kill
that is what is left, and hitless replay says that it is cut off.`,
		Example: `  hitless record --kubeconfig ~/.kube/staging --for 24h --anonymous --out staging.timeline
  hitless replay staging.timeline --subject kube-proxy@v1.37.1/nftables --controlplane replay`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begin := time.Now()
			o.Asking = func(server string, patience time.Duration) {
				fmt.Fprintf(cmd.ErrOrStderr(), "asking %s for its objects; it has %s to answer\n", server, patience)
			}
			o.Started = func() {
				length := "until Ctrl-C"
				if o.For > 0 {
					length = "for " + o.For.String()
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "all objects are listed; recording %s\n", length)
			}
			sum, err := run.Record(cmd.Context(), l, o)
			if sum.Text != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", o.File, sum.Text)
			}
			if sum.Refused != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "hitless replay will refuse it: %v\n", sum.Refused)
			}
			if err == nil && o.For > 0 && cmd.Context().Err() != nil {
				return fmt.Errorf("interrupted after %s of %s; what was recorded until then is whole", time.Since(begin).Round(time.Second), o.For)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster")
	f.StringVar(&l.Context, "context", "", "context of the kubeconfig (default its current one)")
	f.StringVar(&o.File, "out", "", "`FILE` for the timeline; it must not be there yet")
	f.DurationVar(&o.For, "for", 0, "how long to record (default until Ctrl-C)")
	f.BoolVar(&o.Anonymous, "anonymous", false, "replace names, addresses and node ports by others")
	return cmd
}

func replayCommand() *cobra.Command {
	var o run.Options
	var set []string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run a timeline against a subject and judge the measurement",
		Long: `Run a timeline against a subject and judge the measurement.

A timeline is a text with one step a line: docs/timeline.md. A run in a lab writes its steps as history/timeline in its folder, so
that they can be replayed against another subject. Only a second proxy (interference with what=second) is a step without a verb.
Flags override nodes, rate, seed and parameters of the file. Results and exit codes are those of hitless run. A file that cannot be
read is an error with its line, before anything is started.`,
		Example: `  hitless replay docs/examples/k8s-71515.timeline --subject kube-proxy@v1.12.2/ipvs --controlplane replay
  hitless run rollout --subject kube-proxy@v1.25.3/iptables
  hitless replay out/rollout/history/timeline --subject kube-proxy@v1.26.0/iptables`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := fill(&o, cmd, "", set); err != nil {
				return err
			}
			for name, reset := range map[string]func(){"nodes": func() { o.Nodes = 0 }, "rate": func() { o.Rate = 0 }, "seed": func() { o.Seed = 0 }} {
				if !cmd.Flags().Changed(name) {
					reset() // the file decides
				}
			}
			if o.Timeline, err = run.ReadTimeline(cmd.Context(), args[0]); err != nil {
				return err
			}
			return runAndConclude(cmd, o)
		},
	}
	f := cmd.Flags()
	subjectFlag(f, &o)
	seedFlag(f, &o, "seed of the run instead of the file's")
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/timeline)")
	signFlag(f, &o.Sign)
	rateFlag(f, &o)
	stopFlag(f, &o)
	captureFlag(f, &o)
	verboseFlag(f)
	guestKernelFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}
