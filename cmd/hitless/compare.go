package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/merge"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/scenarios/museum"
)

func compareCommand() *cobra.Command {
	var o run.Options
	var asked run.Comparison
	var set []string
	var verify, part string
	cmd := &cobra.Command{
		Use:   "compare SCENARIO --subject A --subject B",
		Short: "Run a scenario against several subjects, or on several kernels, with the same seeds, and report whether one is worse",
		Long: `Run a scenario against several subjects with the same seeds, and compare each subject with the reference: by dropped and delayed connections,
worst gaps, seconds of outage, and new classes and causes. docs/compare.md has the rules. Several --guest-kernel compare kernels in the same
way: each subject runs on each of them.

Exit codes: 0, no subject is worse; 1, a subject is worse or fails its budget; 2, wrong usage or environment; 3, inconclusive or invalid. The
reference fails only a budget that --budget gives. A shard that has made its runs has exit code 0.`,
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
			if asked.Shard, err = shard.Parse(part); err != nil {
				return err
			}
			c, err := run.Compare(cmd.Context(), o, asked)
			if err != nil {
				return err
			}
			if c == nil {
				return tellShard(cmd, asked.Shard, run.ComparisonFolder(o))
			}
			return concludeComparison(cmd, c, run.ComparisonFolder(o))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&asked.Subjects, "subject", nil, "a proxy to compare, a `SUBJECT`; give two or more, or one (default bundled) with several --guest-kernel")
	f.StringArrayVar(&asked.Kernels, "guest-kernel", nil, guestKernelUsage+"; again to compare kernels (default "+vm.DefaultKernel+")")
	f.StringVar(&asked.Against, "against", "", "the `SUBJECT`, or the kernel, that the others are compared with (default the first)")
	f.StringVar(&asked.BudgetFile, "budget", "", "YAML `FILE` with the accepted loss of each run, also of the reference (default none, and the reference may lose)")
	f.IntVar(&asked.Runs, "runs", 4, "runs of each subject, at most 10,000, with the seeds 1 to this number")
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/compare-SCENARIO)")
	flags.Aside(f, "out")
	signFlag(f, &o.Sign)
	verifyFlag(f, &verify)
	shardFlag(f, &part, "runs")
	rateFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}

// shardFlag adds --shard to a command whose result has the parts that all names.
func shardFlag(f *pflag.FlagSet, part *string, all string) {
	f.StringVar(part, "shard", "", "only part `I/N` of the "+all+", such as 1/3; hitless merge joins the folders")
	flags.Aside(f, "shard")
}

// callOf is the call of a command as one line for a shell, the same on all machines: without its part, its places and their folders.
func callOf(cmd *cobra.Command) string {
	return record.JoinWords(commandLine(cmd, strings.TrimPrefix(cmd.CommandPath(), "hitless "), cmd.Flags().Args(), withoutFolder))
}

// commandLine has the words of a call by its name, with the flags that were given and change what it measures, in the order of their names.
func commandLine(cmd *cobra.Command, name string, args []string, written func(*pflag.Flag, string) string) []string {
	words := append(append([]string{"hitless"}, strings.Fields(name)...), args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !flags.IsAside(f) {
			words = append(words, flagWords(f, written)...)
		}
	})
	return words
}

// asGiven is the value of a flag.
func asGiven(_ *pflag.Flag, value string) string { return value }

// withoutFolder is the value of a flag without what only this machine has: a file has its name, and one that is not of the measurement none.
func withoutFolder(f *pflag.Flag, value string) string {
	if file, is := strings.CutPrefix(value, "exec:"); is {
		return "exec:" + filepath.Base(file)
	}
	if kernel, err := vm.ParseKernelChoice(value); err == nil && f.Name == "guest-kernel" {
		return kernel.String()
	}
	if flags.IsPlace(f) {
		return "FILE"
	}
	return value
}

// flagWords are the words that give a flag its values again.
func flagWords(f *pflag.Flag, written func(*pflag.Flag, string) string) (words []string) {
	for _, value := range valuesOf(f) {
		switch value = written(f, value); f.NoOptDefVal {
		case "":
			words = append(words, "--"+f.Name, value)
		case value:
			words = append(words, "--"+f.Name)
		default: // without a value it would mean NoOptDefVal, and a value apart is another word
			words = append(words, "--"+f.Name+"="+value)
		}
	}
	return words
}

// valuesOf are the values that a flag was given: several for one that can be given again.
func valuesOf(f *pflag.Flag) []string {
	if list, is := f.Value.(pflag.SliceValue); is {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// tellShard says what is left to do after a shard.
func tellShard(cmd *cobra.Command, s shard.Shard, dir string) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "shard %s is in %s; `hitless merge` joins it with the others\n", s, dir)
	return err
}

func mergeCommand() *cobra.Command {
	var out, verify string
	cmd := &cobra.Command{
		Use: "merge DIR...", Short: "Join the shards of a comparison, a soak, a search of the museum or a conformance suite",
		Long: `Join the folders that all shards of one call wrote, and write what the call without --shard would have written. The folders of the
runs are copied.

A missing shard, one that is given twice, and shards of different calls or programs are errors (exit code 2), and nothing is written. Other exit
codes are those of the whole call.`,
		Example: `  hitless compare rollout --subject bundled --subject kube-proxy@v1.37.1/ipvs --shard 1/2 --out out/shard-1
  hitless compare rollout --subject bundled --subject kube-proxy@v1.37.1/ipvs --shard 2/2 --out out/shard-2
  hitless merge out/shard-1 out/shard-2 --out out/whole`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			key, err := verifyingKey(cmd.Context(), verify)
			if err != nil {
				return err
			}
			whole, err := merge.Folders(cmd.Context(), dirs, out, key)
			if err != nil {
				return err
			}
			return concludeMerge(cmd, whole, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder for the whole, which must not have results yet")
	verifyFlag(cmd.Flags(), &verify)
	_ = cmd.MarkFlagRequired("out") // fails only for an unknown flag
	return cmd
}

// concludeMerge prints what the shards found, and turns it into the exit code of the whole call.
func concludeMerge(cmd *cobra.Command, whole *merge.Whole, dir string) error {
	out, code := cmd.OutOrStdout(), exitPass
	switch {
	case whole.Comparison != nil:
		return concludeComparison(cmd, whole.Comparison, dir)
	case whole.Conformance != nil:
		printConformance(out, whole.Conformance, dir)
		code = whole.Conformance.ExitCode()
	case whole.Bugs != nil:
		for _, b := range whole.Bugs {
			printAnswer(out, b)
		}
		code = museum.ExitCode(run.Answers(whole.Bugs)...)
	default:
		for _, s := range whole.Soak {
			fmt.Fprintf(out, "%s  %s  history sha256 %s\n", s.Name, s.Verdict, s.History)
			code = worse(code, s.Verdict.ExitCode())
		}
	}
	if code != exitPass {
		return exitError{code: code}
	}
	return nil
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
