package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports/compare"
)

func compareCommand() *cobra.Command {
	var o run.Options
	var asked run.Comparison
	var set []string
	var verify string
	cmd := &cobra.Command{
		Use:   "compare SCENARIO --subject A --subject B",
		Short: "Run a scenario against several subjects, or on several kernels, with the same seeds, and report whether one is worse",
		Long: `Run a scenario against several subjects with the same seeds, and compare each subject with the reference: by dropped and delayed connections,
worst gaps, seconds of outage, and new classes and causes. docs/compare.md has the rules. Several --guest-kernel compare kernels in the same
way: each subject runs on each of them.

Exit codes: 0, no subject is worse; 1, a subject is worse or fails its budget; 2, wrong usage or environment; 3, inconclusive or invalid. The
reference fails only a budget that --budget gives.`,
		Example: `  hitless compare rollout --subject kube-proxy@v1.25.3/iptables --subject kube-proxy@v1.26.0/iptables
  hitless compare restart --controlplane replay --subject bundled --subject kube-proxy@v1.37.1/ipvs
  hitless compare rollout --subject kube-proxy@v1.37.1/ipvs --guest-kernel debian-12 --guest-kernel debian-13`,
		Args: exactScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fill(&o, cmd, args[0], set); err != nil {
				return err
			}
			var err error
			if asked.Key, err = verifyingKey(cmd.Context(), verify); err != nil {
				return err
			}
			c, err := run.Compare(cmd.Context(), o, asked)
			if err != nil {
				return err
			}
			return concludeComparison(cmd, c, run.ComparisonFolder(o))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&asked.Subjects, "subject", nil, "a proxy to compare, a `SUBJECT`; give two or more, or one (default bundled) with several --guest-kernel")
	f.StringArrayVar(&asked.Kernels, "guest-kernel", nil, guestKernelUsage+"; again to compare kernels (default "+vm.DefaultKernel+")")
	f.StringVar(&asked.Against, "against", "", "the `SUBJECT`, or the kernel, that the others are compared with (default the first)")
	f.StringVar(&asked.BudgetFile, "budget", "", "YAML `FILE` with the accepted loss of each run, also of the reference (default none, and the reference may lose)")
	f.IntVar(&asked.Runs, "runs", 4, "runs of each subject, with the seeds 1 to this number")
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/compare-SCENARIO)")
	signFlag(f, &o.Sign)
	verifyFlag(f, &verify)
	rateFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}

// concludeComparison prints a comparison and turns its verdict into an exit code.
func concludeComparison(cmd *cobra.Command, c *compare.Comparison, dir string) error {
	if err := compare.WriteTerminal(cmd.OutOrStdout(), c); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "report  %s\n", filepath.Join(dir, compare.PageFile))
	if code := c.Verdict.ExitCode(); code != exitPass {
		return exitError{code: code}
	}
	return nil
}

func resultsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "results COMPARE.json...", Short: "Print comparisons as one Markdown table",
		Example: "  hitless results docs/results/*.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []*compare.Comparison
			for _, file := range args {
				c, err := compare.Read(cmd.Context(), file)
				if err != nil {
					return err
				}
				all = append(all, c)
			}
			return compare.WriteResults(cmd.OutOrStdout(), all)
		},
	}
}
