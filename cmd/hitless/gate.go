package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis/budget"
	"github.com/hitless/hitless/internal/clusterwatch"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

func gateCommand() *cobra.Command {
	var file, verify string
	cmd := &cobra.Command{
		Use: "gate DIR [--budget FILE]", Short: "Judge a run or a comparison again, with a budget of accepted losses", Args: cobra.ExactArgs(1),
		Long: `Judge a recorded run again by a budget of accepted losses: DIR is the folder of the run.

DIR may also be a folder that hitless compare wrote. Its runs are compared again by the rules of hitless compare, with its reference. --budget
judges each run, also those of the reference. Without it the budget of the comparison holds. A run needs --budget. docs/budgets.md has the keys
of the file.

All seals are checked first. Nothing is written. Exit codes: 0, pass; 1, fail, or a subject is worse; 2, wrong usage, such as another folder;
3, invalid or inconclusive, such as after a change of a record.`,
		Example: `  hitless gate out/rollout --budget budget.yaml
  hitless gate out/compare-rollout`,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := budgetOfGate(cmd, file)
			if err != nil {
				return err
			}
			comparison := compare.IsComparison(args[0])
			if b == nil && !comparison {
				return errors.New("which budget? name its file with --budget FILE: docs/budgets.md (only a folder with " + compare.File + " needs none)")
			}
			key, err := verifyingKey(cmd.Context(), verify)
			if err != nil {
				return err
			}
			if err := reports.Recover(args[0]); err != nil {
				return err
			}
			if comparison {
				if err := noVerbose(cmd, args[0]); err != nil {
					return err
				}
				return gateComparison(cmd, args[0], key, b)
			}
			defer fmt.Fprintf(cmd.OutOrStdout(), "budget           %s\n", file)
			return gateRun(cmd, args[0], key, b)
		},
	}
	verifyFlag(cmd.Flags(), &verify)
	verboseFlag(cmd.Flags())
	cmd.Flags().StringVar(&file, "budget", "", "YAML `FILE` with the accepted loss, in counts or in rules: docs/budgets.md")
	return cmd
}

// budgetOfGate reads the budget; it is nil without a file.
func budgetOfGate(cmd *cobra.Command, file string) (*budget.File, error) {
	if file == "" {
		return nil, nil
	}
	b, err := budget.Load(cmd.Context(), file)
	if err != nil {
		return nil, err
	}
	return b, b.CheckScenarios(append(run.ScenarioNames(), session.Scenario, clusterwatch.Scenario))
}

func gateRun(cmd *cobra.Command, dir string, key ed25519.PublicKey, b *budget.File) error {
	h, err := record.OpenSigned(dir, key)
	if err != nil {
		return record.Nor(err, "a comparison ("+compare.File+")")
	}
	r, err := b.Judge(h)
	if err != nil {
		return err
	}
	return concludeRecord(cmd, h, r)
}

func gateComparison(cmd *cobra.Command, dir string, key ed25519.PublicKey, b *budget.File) error {
	var o compare.Options
	if b != nil {
		o.Budget = &b.Budget
	}
	c, err := compare.Gate(cmd.Context(), dir, key, o)
	if err != nil && b != nil {
		err = b.Locate(err)
	}
	if err != nil {
		return err
	}
	if err := compare.WriteTerminal(cmd.OutOrStdout(), c); err != nil {
		return err
	}
	if code := c.Verdict.ExitCode(); code != exitPass {
		return exitError{code: code}
	}
	return nil
}
