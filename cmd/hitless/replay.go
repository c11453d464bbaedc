package main

import (
	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/run"
)

func replayCommand() *cobra.Command {
	var o run.Options
	var set []string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run a timeline against a subject and judge the measurement",
		Long: `Run a timeline against a subject and judge the measurement.

A timeline is a text with one step a line: docs/timeline.md. A run in a lab writes its steps as history/timeline in its folder, so
that they can be replayed against another subject; drain and interference have steps without a verb and write none. Flags override
nodes, rate, seed and parameters of the file. Results and exit codes are those of hitless run. A file that cannot be read is an
error with its line, before anything is started.`,
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
