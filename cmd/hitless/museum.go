package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/museum"
)

func museumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "museum", Short: "Historical bugs that lost traffic, and whether a subject has them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listMuseum(cmd.OutOrStdout()) },
	}
	cmd.AddCommand(museumListCommand(), museumRunCommand())
	return cmd
}

func museumListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the bugs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listMuseum(cmd.OutOrStdout()) },
	}
}

func listMuseum(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tAFFECTED\tFIXED IN\tSCENARIO\tTITLE")
	for _, e := range museum.All() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.ID, e.Affected, e.Fixed, e.Scenario, e.Title)
	}
	return w.Flush()
}

func museumRunCommand() *cobra.Command {
	var o run.Options
	var set []string
	cmd := &cobra.Command{
		Use:   "run ID...",
		Short: "Search a subject for historical bugs",
		Long: `Run the scenario that triggers a historical bug against a subject, and search the record for the signature of that bug. Other losses
of the run are in its report and do not count here.

Exit codes: 0 not seen, 1 seen, 2 wrong usage or environment, 3 cannot tell, 130 interrupted. Of several bugs, 1 when any is
seen, else 3 when any run cannot tell.`,
		Example: `  hitless museum run k8s-85643 --subject kube-proxy@v1.25.3/iptables
  hitless museum run k8s-85643 --controlplane replay --set terminatingFallback=off`,
		Args: func(_ *cobra.Command, ids []string) error {
			if len(ids) == 0 {
				return fmt.Errorf("give one bug or more; `hitless museum list` lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, ids []string) error {
			var entries []museum.Entry
			for _, id := range ids {
				e, err := museum.Find(id)
				if err != nil {
					return err
				}
				entries = append(entries, e)
			}
			return runMuseum(cmd, o, set, entries)
		},
	}
	f := cmd.Flags()
	subjectFlag(f, &o)
	seedFlag(f, &o, "seed of the run; the same seed repeats the same history")
	f.StringVar(&o.Out, "out", "", "folder for the results (default out/museum-ID); with several bugs a folder for each below it")
	signFlag(f, &o.Sign)
	rateFlag(f, &o)
	commonFlags(f, &o, &set)
	return cmd
}

// runMuseum runs the entries one after the other.
func runMuseum(cmd *cobra.Command, o run.Options, set []string, entries []museum.Entry) (err error) {
	if err := fill(&o, cmd, "", set); err != nil {
		return err
	}
	if len(entries) > 1 && o.Out != "" {
		folder, lockErr := reports.Lock(o.Out, "hitless museum run")
		if lockErr != nil {
			return lockErr
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
	}
	var answers []museum.Answer
	for _, e := range entries {
		one := o
		if len(entries) > 1 && o.Out != "" {
			one.Out = filepath.Join(o.Out, e.ID)
		}
		finding, result, err := run.Museum(cmd.Context(), one, e)
		if err != nil {
			return err
		}
		answers = append(answers, finding.Answer)
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s in %s\n", e.ID, finding.Answer, o.Subject)
		for _, reason := range finding.Reasons {
			fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", reason)
		}
		printHashes(cmd, result)
		printPlace(cmd, result)
	}
	if code := museum.ExitCode(answers...); code != exitPass {
		return exitError{code: code}
	}
	return nil
}
