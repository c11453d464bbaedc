package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/museum"
)

// museumCall is a call of hitless museum run.
type museumCall struct {
	o      run.Options
	set    []string
	all    bool
	shard  string
	asJSON bool
}

func museumRunCommand() *cobra.Command {
	var c museumCall
	cmd := &cobra.Command{
		Use:   "run ID...",
		Short: "Search a subject for historical bugs",
		Long: `Run the trigger of a historical bug against a subject, and search the record for the signature of that bug. Other losses
of the run are in its report and do not count here. --all searches for all bugs of the museum, one after the other; bugs of other
modes, or of what only an older Kubernetes writes, do not apply. A run that fails tells nothing of its bug; the others follow. With several bugs --out has museum.json, junit.xml and a folder for each bug.

Exit codes: 0 not seen, 1 seen, 2 wrong usage or environment, 3 cannot tell, or no bug applies, 130 interrupted. Of several bugs, 1 when any
is seen, else 3 when any run cannot tell. A shard to which no bug applies has 0.`,
		Example: `  hitless museum run k8s-85643 --subject kube-proxy@v1.25.3/iptables
  hitless museum run k8s-85643 --controlplane replay --set terminatingFallback=off
  hitless museum run --all --subject exec:proxy.yaml --controlplane replay --shard 1/4`,
		Args: func(_ *cobra.Command, ids []string) error {
			switch {
			case len(ids) == 0 && !c.all:
				return fmt.Errorf("give one bug or more, or --all; `hitless museum list` lists them")
			case len(ids) > 0 && c.all:
				return fmt.Errorf("give bugs or --all, not both")
			case c.shard != "" && !c.all:
				return fmt.Errorf("--shard is a part of --all; give --all too")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, ids []string) error {
			entries, part, err := c.entries(ids)
			if err != nil {
				return err
			}
			return c.run(cmd, entries, part)
		},
	}
	f := cmd.Flags()
	subjectFlag(f, &c.o)
	seedFlag(f, &c.o, "seed of the run; the same seed repeats the same history")
	f.StringVar(&c.o.Out, "out", "", "folder for the results (default out/museum-ID, with several bugs out/museum)")
	f.BoolVar(&c.all, "all", false, "search for all bugs of the museum")
	shardFlag(f, &c.shard, "bugs of --all")
	f.BoolVar(&c.asJSON, "json", false, "write the result as JSON")
	flags.Aside(f, "out", "json")
	signFlag(f, &c.o.Sign)
	entryRateFlag(f, &c.o)
	guestKernelFlag(f, &c.o)
	commonFlags(f, &c.o, &c.set)
	return cmd
}

// entries returns the bugs that the call names.
func (c *museumCall) entries(ids []string) (entries []museum.Entry, part shard.Shard, err error) {
	for i, id := range ids {
		e, err := museum.Find(id)
		if err != nil {
			return nil, part, err
		}
		if slices.Contains(ids[:i], id) {
			return nil, part, fmt.Errorf("%s is given twice; give each bug once", id)
		}
		entries = append(entries, e)
	}
	if !c.all {
		return entries, part, nil
	}
	if part, err = shard.Parse(c.shard); err != nil {
		return nil, part, err
	}
	for i, e := range museum.All() {
		if part.Has(i) {
			entries = append(entries, e)
		}
	}
	return entries, part, nil
}

// run runs the entries one after the other.
func (c *museumCall) run(cmd *cobra.Command, entries []museum.Entry, part shard.Shard) (err error) {
	if err := fill(&c.o, cmd, "", c.set); err != nil {
		return err
	}
	for _, e := range entries { // a wrong setting is refused before the first run
		one := c.o
		leaveToEntry(cmd, &one, e)
		if err := one.UseEntry(e); err != nil {
			return err
		}
	}
	several := c.all || len(entries) > 1
	if several {
		c.o.Out = cmp.Or(c.o.Out, filepath.Join("out", "museum"))
		folder, lockErr := reports.LockMany(c.o.Out, "hitless museum run")
		if lockErr != nil {
			return lockErr
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
	}
	found, err := c.examine(cmd, entries, several)
	if err != nil {
		return err
	}
	if part.Of > 0 {
		var ids []string
		for _, e := range museum.All() {
			ids = append(ids, e.ID)
		}
		if err := shard.Write(cmd.Context(), c.o.Out, shard.Museum, callOf(cmd), part, ids); err != nil {
			return err
		}
	}
	if part.Of > 0 && run.Count(found, museum.DoesNotApply) == len(found) {
		return nil // the other shards have the bugs that apply
	}
	if code := museum.ExitCode(run.Answers(found)...); code != exitPass {
		return exitError{code: code}
	}
	return nil
}

// examine runs the entries, and prints each answer. Of several bugs the results so far are written after each, so that an interrupt loses none.
func (c *museumCall) examine(cmd *cobra.Command, entries []museum.Entry, several bool) (found []run.BugResult, err error) {
	out := cmd.OutOrStdout()
	if len(entries) == 0 { // a shard of more shards than bugs
		if err := run.WriteBugs(c.o.Out, nil); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		one := c.o
		if several {
			one.Out = filepath.Join(c.o.Out, e.ID)
		}
		leaveToEntry(cmd, &one, e)
		b, err := run.Museum(cmd.Context(), one, e)
		if err != nil && (cmd.Context().Err() != nil || !c.all || run.IsUsage(err) || run.Count(found, museum.DoesNotApply) == len(found)) {
			return found, err // a first run that fails shows that the environment is wrong
		}
		if err != nil {
			b.Answer, b.Reasons = museum.CannotTell, []string{"the run failed: " + err.Error()}
		}
		found = append(found, b)
		switch {
		case c.asJSON:
		case c.all:
			printAnswer(out, b)
		default:
			printBug(out, b)
		}
		if several {
			if err := run.WriteBugs(c.o.Out, found); err != nil {
				return found, err
			}
		}
	}
	switch {
	case c.asJSON && several:
		return found, encode(out, found)
	case c.asJSON:
		return found, encode(out, found[0])
	case c.all:
		_, err := fmt.Fprintf(out, "\n%s: %s\n", units.Plural(len(found), "bug"), museum.CountText(run.Answers(found)))
		return found, err
	}
	return found, nil
}

// entryRateFlag is rateFlag with the entry's own rate as its default, as leaveToEntry sets it.
func entryRateFlag(f *pflag.FlagSet, o *run.Options) {
	rateFlag(f, o)
	defaultsText(f, "rate", "0", "the rate of the bug's committed runs")
}

// leaveToEntry replaces the defaults of flags by the values of an entry. A timeline has its own rate.
func leaveToEntry(cmd *cobra.Command, o *run.Options, e museum.Entry) {
	if !cmd.Flags().Changed("rate") {
		if o.Rate = e.UsualRate(); e.Timeline != nil {
			o.Rate = 0
		}
	}
	if e.NodesNeeded() > 0 && !cmd.Flags().Changed("nodes") {
		o.Nodes = 0
	}
}

// printAnswer prints the answer of one of many bugs.
func printAnswer(out io.Writer, b run.BugResult) {
	fmt.Fprintf(out, "%-16s %-14s %s\n", b.ID, b.Answer, analysis.FirstOf(b.Reasons...))
}

// printBug prints the answer of one bug with its reasons.
func printBug(out io.Writer, b run.BugResult) {
	fmt.Fprintf(out, "%s  %s in %s\n", b.ID, b.Answer, b.Subject)
	for _, reason := range b.Reasons {
		fmt.Fprintf(out, "  %s\n", reason)
	}
	if b.HistorySha256 != "" {
		fmt.Fprintf(out, "history sha256   %s\nreport           %s\n", b.HistorySha256, filepath.Join(b.Folder, reports.PageFile))
	}
}

func museumJudgeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "judge ID DIR", Short: "Search the record of a run for a bug", Args: cobra.ExactArgs(2),
		Long: `Search the record of a run that has ended for the signature of a bug, without a run. The record must be of the bug's trigger. Exit codes are
those of hitless museum run.`,
		Example: `  hitless museum judge k8s-134147 out/museum-k8s-134147`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := museum.Find(args[0])
			if err != nil {
				return err
			}
			b, err := run.JudgeBug(args[1], e)
			if err != nil {
				return err
			}
			if asJSON {
				err = encode(cmd.OutOrStdout(), b)
			} else {
				printBug(cmd.OutOrStdout(), b)
			}
			if code := museum.ExitCode(b.Answer); code != exitPass && err == nil {
				err = exitError{code: code}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the result as JSON")
	return cmd
}

func museumBisectCommand() *cobra.Command {
	var o run.Options
	var set, versions []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "bisect ID", Short: "Find the versions of kube-proxy with a bug", Args: cobra.ExactArgs(1),
		Long: `Find the oldest and the newest version of kube-proxy with a bug, in the mode in which the museum has it. Without --versions it searches the first
release of each minor version, such as v1.22.0, and the museum's own version. That takes about ten runs. It assumes that the versions with the bug
follow each other without a gap.

With --versions it searches each release branch, such as v1.12, because fixes are picked into each branch at another time. It then assumes within
each branch that there is no gap. So n versions of a branch need about log2(n) runs, and n where none of them has it. Each version is built when
it is needed.

Exit codes: 0 found, 1 the bug is not seen in the version that the museum names, 2 wrong usage or environment, 3 a run cannot tell,
130 interrupted.`,
		Example: `  hitless museum bisect k8s-105657 --controlplane replay
  hitless museum bisect k8s-105657 --versions v1.19.16,v1.20.15,v1.21.14,v1.22.3,v1.22.17 --controlplane replay`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := museum.Find(args[0])
			if err != nil {
				return err
			}
			if err := fill(&o, cmd, "", set); err != nil {
				return err
			}
			leaveToEntry(cmd, &o, e)
			a, err := run.Bisect(cmd.Context(), o, e, versions, func(b run.BugResult) {
				if !asJSON {
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", b.Subject, b.Answer)
				}
			})
			if asJSON && len(a.Runs) > 0 { // also after an error, which loses no run
				err = errors.Join(err, encode(cmd.OutOrStdout(), a))
			}
			switch {
			case err != nil && a.First == "" && len(a.Runs) == 1 && a.Runs[0].Answer == museum.NotSeen:
				return exitError{code: exitFail, err: err}
			case err != nil || asJSON:
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), a.Text())
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&versions, "versions", nil, "versions to search, a `LIST` such as v1.20.15,v1.22.17 (default the first release of each minor version); the museum's own version is added")
	seedFlag(f, &o, "seed of the runs")
	f.StringVar(&o.Out, "out", "", "folder for the runs, one folder for each version (default out/bisect-ID)")
	f.BoolVar(&asJSON, "json", false, "write the result as JSON")
	signFlag(f, &o.Sign)
	entryRateFlag(f, &o)
	guestKernelFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}
