package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios/museum"
)

func museumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "museum", Short: "Historical bugs that lost traffic, and whether a subject has them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listMuseum(cmd.OutOrStdout()) },
	}
	cmd.AddCommand(museumListCommand(), museumShowCommand(), museumRunCommand())
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
	fmt.Fprintln(w, "ID\tMODES\tAFFECTED\tFIXED IN\tTITLE")
	for _, e := range museum.All() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.ID, modesOf(e), e.Affected, e.Fixed, e.Title)
	}
	return w.Flush()
}

// modesOf lists the modes of an entry.
func modesOf(e museum.Entry) string {
	if len(e.Modes) == 0 {
		return "all"
	}
	return strings.Join(e.Modes, ",")
}

func museumShowCommand() *cobra.Command {
	var timeline bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Explain a bug: its trigger, what a run with it looks like, and the fix", Args: cobra.ExactArgs(1),
		Long: `Explain a bug: which versions have it, what triggers it, what to look for in a report, and which change fixed it. The picture is of a
run with the bug. With --timeline only the steps are printed, as hitless replay reads them.`,
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
			return showBug(cmd.OutOrStdout(), e)
		},
	}
	cmd.Flags().BoolVar(&timeline, "timeline", false, "print the timeline alone")
	return cmd
}

// showBug prints an entry.
func showBug(out io.Writer, e museum.Entry) error {
	fmt.Fprintf(out, "%s: %s\n\n", e.ID, e.Title)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, line := range [][2]string{{"issue", e.Issue}, {"fix", e.Fix}, {"affected", e.Affected}, {"fixed in", e.Fixed}, {"modes", modesOf(e)},
		{"has it", specimenOf(e.Bad)}, {"has it not", specimenOf(e.Good)}, {"trigger", triggerOf(e)}, {"look for", e.Look},
		{"see it", seeIt(e)}} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if text, err := e.Text(); err == nil {
		fmt.Fprintf(out, "\n%s", text)
	}
	if picture, has := e.Picture(); has {
		fmt.Fprintf(out, "\n%s", picture)
	}
	return nil
}

func specimenOf(s museum.Specimen) string {
	return strings.Join(append([]string{s.Subject}, settings(s.Set)...), " ")
}

// triggerOf is the scenario with its parameters, as arguments of hitless run; for a timeline where its steps are.
func triggerOf(e museum.Entry) string {
	if e.Timeline != nil {
		return "the timeline below"
	}
	return strings.Join(append([]string{e.Scenario}, settings(e.Set)...), " ")
}

func seeIt(e museum.Entry) string {
	return strings.Join(append([]string{"hitless museum run", e.ID, "--subject", site.Word(e.Bad.Subject), "--controlplane replay"}, settings(e.Bad.Set)...), " ")
}

// settings are parameters as arguments, in order of their keys.
func settings(set map[string]string) (words []string) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		words = append(words, "--set "+site.Word(key+"="+set[key]))
	}
	return words
}

// encode writes a value as indented JSON.
func encode(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
