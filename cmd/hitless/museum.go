package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/scenarios/museum"
)

func museumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "museum", Short: "Historical bugs that lost traffic, and whether a subject has them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listMuseum(cmd.OutOrStdout()) },
	}
	cmd.AddCommand(museumListCommand(), museumShowCommand(), museumRunCommand(), museumJudgeCommand(), museumBisectCommand())
	return cmd
}

func museumListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the bugs; `hitless museum show ID` has the affected versions and the fix", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listMuseum(cmd.OutOrStdout()) },
	}
}

func listMuseum(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tMODES\tTITLE")
	for _, e := range museum.All() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.ID, e.ModeText(), e.Title)
	}
	return w.Flush()
}

func museumShowCommand() *cobra.Command {
	var timeline bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Explain a bug: its trigger, what a run with it looks like, and the fix", Args: cobra.ExactArgs(1),
		Long: `Explain a bug: which versions have it, what triggers it, what to look for in a report, and which change fixed it. The picture is of a
run with the bug. With --timeline only the steps are printed, as hitless replay reads them. Where the trigger is a scenario, they are those of the
run.`,
		Example: `  hitless museum show k8s-134147
  hitless museum show k8s-134147 --timeline > flush.timeline`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := museum.Find(args[0])
			if err != nil {
				return err
			}
			if timeline {
				text, err := e.Text()
				if err != nil {
					return err
				}
				_, err = io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			return e.Write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&timeline, "timeline", false, "print the timeline alone")
	return cmd
}

// encode writes a value as indented JSON.
func encode(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
