package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

// formTerminal is the one form that --verbose changes.
const formTerminal = "terminal"

// forms are what `hitless report --format` prints; the forms of single runs take only one.
var forms = map[string]struct {
	single bool
	write  func(io.Writer, []*reports.RunFolder) error
}{
	formTerminal: {true, func(w io.Writer, runs []*reports.RunFolder) error {
		return reports.WriteTerminal(w, runs[0].Report, runs[0].Origin)
	}},
	"json": {true, func(w io.Writer, runs []*reports.RunFolder) error { return analysis.WriteJSON(w, runs[0].Report) }},
	"junit": {true, func(w io.Writer, runs []*reports.RunFolder) error {
		return reports.WriteJUnit(w, runs[0].Report, runs[0].Origin)
	}},
	"markdown": {true, func(w io.Writer, runs []*reports.RunFolder) error {
		return reports.WriteMarkdown(w, runs[0].Report, runs[0].Origin)
	}},
	"lanes": {true, func(w io.Writer, runs []*reports.RunFolder) error {
		return reports.WriteLanes(w, runs[0].Report, runs[0].History)
	}},
	"svg": {true, func(w io.Writer, runs []*reports.RunFolder) error {
		return reports.WriteSVG(w, reports.PictureOf(runs[0].Report), reports.ThemeAuto)
	}},
	"openmetrics": {false, reports.WriteOpenMetrics},
	"benchmark":   {false, reports.WriteBenchmark},
	"conformance": {false, reports.WriteConformance},
}

func reportCommand() *cobra.Command {
	var format, started, verify string
	var options compare.Options
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Compute the reports of a run again from its history, or print them in another form",
		Long: `Compute report.json, report.html, junit.xml and summary.md of a run again from its history; the exit code is the verdict's.
Of a folder with a comparison, compute all of that for each of its runs, and compare.json, compare.html and compare.md. Runs of different
programs, kernels or control planes are compared only with --mixed.

The record is compared with its seal first. A record that was changed is invalid (exit code 3), also with --format, and its reports stay as
they are.

With --format nothing is written: the run is printed, and the exit code is 0 whatever its verdict, unless the record was changed. These forms take one run:
terminal, json, junit, markdown, lanes (the scenario drawn as lines of text) and svg (the same as a picture). These take one or
more:

  openmetrics   samples with time stamps, for a time-series database to load; they begin when the run was started by the
                clock of its host, as host.json tells
  benchmark     the Go benchmark format: benchstat compares files of several seeds, or with -col /subject subjects in one.
                Runs that cannot be trusted are no samples
  conformance   YAML for each implementation: its modes, the features (scenarios with what was set) that it supports and
                those that failed, and how to repeat each run`,
		Example: `  hitless report out/demo
  hitless report out/compare-rollout
  hitless report out/demo --format openmetrics
  hitless report out/compare-rollout/*-seed-* --format benchmark | benchstat -col /subject -
  hitless report out/* --format conformance
  hitless report serve out`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "" {
				if options != (compare.Options{}) {
					return errors.New("--against and --mixed are for the folder of a comparison, without --format")
				}
				return printRuns(cmd, args, format, started, verify)
			}
			switch {
			case started != "":
				return errors.New("--started is for --format openmetrics and conformance; give one of them, or leave --started out")
			case len(args) != 1:
				return fmt.Errorf("without --format the reports of one run are made, and %d folders were given; give one", len(args))
			}
			return reportAgain(cmd, args[0], verify, options)
		},
	}
	cmd.AddCommand(serveCommand(), conformanceReportCommand())
	cmd.Flags().StringVar(&format, "format", "", "print in this `FORM` and write nothing: "+strings.Join(formNames(), ", "))
	flags.Words(cmd.Flags(), "format", formNames()...)
	verifyFlag(cmd.Flags(), &verify)
	cmd.Flags().StringVar(&options.Against, "against", "", "in a comparison: the `SUBJECT` that the others are compared with")
	cmd.Flags().BoolVar(&options.Mixed, "mixed", false, "in a comparison: compare runs of different programs, kernels or control planes too")
	verboseFlag(cmd.Flags())
	cmd.Flags().StringVar(&started, "started", "", "when the runs were started, as 2026-01-31T12:00:00Z, where host.json does not tell")
	return cmd
}

// reportAgain computes the reports of a run or of a comparison again.
func reportAgain(cmd *cobra.Command, dir, verify string, options compare.Options) error {
	if err := reports.Recover(dir); err != nil {
		return err
	}
	if compare.IsComparison(dir) {
		if err := noVerbose(cmd, dir); err != nil {
			return err
		}
		key, err := verifyingKey(cmd.Context(), verify)
		if err != nil {
			return err
		}
		c, err := compare.Again(cmd.Context(), dir, key, options)
		if err != nil {
			return err
		}
		return concludeComparison(cmd, c, dir)
	}
	if options != (compare.Options{}) {
		return fmt.Errorf("--against and --mixed are for the folder of a comparison; %s has no %s", dir, compare.File)
	}
	h, err := openRun(cmd.Context(), dir, verify)
	if err != nil {
		return err
	}
	folder, err := h.Folder()
	if err != nil {
		return err
	}
	r, err := reports.WriteAll(folder, h)
	if err != nil {
		return err
	}
	return concludeRecord(cmd, h, r)
}

// noVerbose refuses --verbose for the folder of a comparison, whose text has one form.
func noVerbose(cmd *cobra.Command, dir string) error {
	if isVerbose(cmd) {
		return fmt.Errorf("--verbose is for the folder of a run, and %s has a comparison; name the folder of one of its runs", dir)
	}
	return nil
}

func formNames() []string { return slices.Sorted(maps.Keys(forms)) }

func printRuns(cmd *cobra.Command, dirs []string, format, started, verify string) error {
	form, known := forms[format]
	if !known {
		return fmt.Errorf("unknown --format %q; the formats are %s", format, strings.Join(formNames(), ", "))
	}
	if form.single && len(dirs) > 1 {
		return fmt.Errorf("%d folders were given, and --format %s prints one run", len(dirs), format)
	}
	if isVerbose(cmd) && format != formTerminal {
		return fmt.Errorf("--format %s has no longer form; give --verbose with --format %s, or leave it out", format, formTerminal)
	}
	var at time.Time
	if started != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, started); err != nil {
			return fmt.Errorf("--started: %w; give a time as 2026-01-31T12:00:00Z", err)
		}
	}
	key, err := verifyingKey(cmd.Context(), verify)
	if err != nil {
		return err
	}
	var runs []*reports.RunFolder
	for _, dir := range dirs {
		r, err := reports.OpenRun(dir, key)
		if err != nil {
			return err
		}
		if !at.IsZero() {
			r.Started = at
		}
		runs = append(runs, r)
	}
	if isVerbose(cmd) {
		return reports.Terminal{Verbose: true}.Write(cmd.OutOrStdout(), runs[0].Report, runs[0].Origin)
	}
	return form.write(cmd.OutOrStdout(), runs)
}
