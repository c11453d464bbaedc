package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

func resultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "results COMPARE.json...", Short: "Print comparisons as one Markdown table; keep results, and check which program made them",
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
	cmd.AddCommand(resultsKeepCommand(), resultsCheckCommand())
	return cmd
}

func resultsKeepCommand() *cobra.Command {
	return &cobra.Command{
		Use: "keep DIR FILE", Short: "Write a result to a file that is kept, with when and with what it was made", Args: cobra.ExactArgs(2),
		Long: `Write the result in a folder to a file: compare.json of a comparison, conformance.yaml of a suite, or report.json of a run. To each run the file
adds when it was made, the programs of upstream and the tools, which host.json in the folder of the run tells. The file in the folder stays without
them, because it must not depend on the time. A conformance report loses its signature.

FILE is replaced only if it is a result, and missing folders of its path are made.`,
		Example: "  hitless results keep out/compare-rollout docs/results/rollout.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if inside, err := filepath.Rel(args[0], args[1]); err == nil && filepath.IsLocal(inside) {
				return fmt.Errorf("%s is in the folder %s, whose files stay as they are; name a file elsewhere", args[1], args[0])
			}
			if err := results.Keep(cmd.Context(), args[0], args[1]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "the result is in %s\n", args[1])
			return err
		},
	}
}

// resultsCheck is a call of hitless results check.
type resultsCheck struct {
	dir, out string
	sample   int
	seed     int64
	all      bool
	// execute runs hitless, as results.Sampler.
	execute func(ctx context.Context, args []string) error
}

func resultsCheckCommand() *cobra.Command {
	c := resultsCheck{seed: 1}
	cmd := &cobra.Command{
		Use: "check [DIR|FILE]", Short: "List the results of another program, and those that do not tell what made them", Args: cobra.MaximumNArgs(1),
		Long: `Read all files of results in a folder (default docs/results), or one file, and list each row that another program than this one made, and each that does not
tell its program, kernel (and QEMU), control plane, programs of upstream, tools or date. Pages (*.md) are no results; any other file that is
not understood is an error.

With --sample some rows are repeated, by their own commands. Of this program a repetition must have the same hash of its history. Of another
program it must have the same verdict, classes and causes. Otherwise the row is listed, and its folder stays.

Exit codes: 0, nothing is listed; 1, a row is; 2, wrong usage, or a file that is not understood; 130, interrupted.`,
		Example: `  hitless results check
  hitless results check docs/results --sample 3 --seed 7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.dir = filepath.Join("docs", "results")
			if len(args) > 0 {
				c.dir = args[0]
			}
			if c.seed != 1 && c.sample == 0 {
				return errors.New("--seed chooses the rows of --sample; give --sample too")
			}
			c.execute = runHitless(cmd.ErrOrStderr())
			return c.run(cmd)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.sample, "sample", 0, "repeat this number of rows (default none)")
	f.Var((*seedValue)(&c.seed), "seed", "which rows --sample repeats; any whole number of 64 bits other than 0")
	flags.Allow(f, "seed", flags.Negative, flags.Zero) // its type says more about 0
	f.StringVar(&c.out, "out", "", "folder for the repetitions, whose folders row-N are replaced (default out/results-check)")
	f.BoolVarP(&c.all, "verbose", "v", false, "name every row that is listed")
	return cmd
}

// run checks, repeats and prints.
func (c *resultsCheck) run(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	program, err := version.OwnSum(ctx)
	if err != nil {
		return fmt.Errorf("reading the running program: %w", err)
	}
	checked, err := results.Check(ctx, c.dir, program)
	if err != nil {
		return err
	}
	if err := checked.Write(out, program, c.all); err != nil {
		return err
	}
	listed := !checked.OK()
	if c.sample > 0 {
		found, err := c.repeat(cmd, checked.Rows, program)
		if err != nil {
			return err
		}
		listed = listed || len(found) > 0
	}
	switch {
	case len(checked.Unread) > 0:
		return exitError{exitUsage, fmt.Errorf("not understood in %s: %s; remove what is no result, or check it with the hitless that wrote it", c.dir, units.Plural(len(checked.Unread), "file"))}
	case listed:
		return exitError{code: exitFail}
	}
	return nil
}

// repeat repeats a sample of rows, and prints the findings.
func (c *resultsCheck) repeat(cmd *cobra.Command, rows []results.Row, program string) (found []results.Finding, err error) {
	dir := cmp.Or(c.out, filepath.Join("out", "results-check"))
	folder, err := reports.Lock(dir, "hitless results check")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	s := results.Sampler{Program: program, Dir: dir, Execute: c.execute, Log: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }, Now: time.Now}
	found, of, err := s.Sample(cmd.Context(), rows, c.sample, c.seed)
	if err == nil && of == 0 {
		return nil, errors.New("no row names a command that repeats it; give a folder with results that do, or leave --sample out")
	}
	for _, f := range found {
		err = errors.Join(err, f.Write(cmd.OutOrStdout()))
	}
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d of %d rows with a command were repeated, %d are listed\n", min(c.sample, of), of, len(found))
	}
	return found, err
}

// runHitless runs this program. Its output but the progress is dropped; a verdict other than pass is no error.
func runHitless(progress io.Writer) func(ctx context.Context, args []string) error {
	return func(ctx context.Context, args []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, program, args...)
		last := &lastLine{w: progress}
		cmd.Stderr = last
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		err = cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && (exit.ExitCode() == exitFail || exit.ExitCode() == exitInvalid) {
			return nil
		}
		if err != nil && last.text != "" {
			err = fmt.Errorf("%w: %s", err, last.text)
		}
		return err
	}
}

// lastLine passes on what is written, and keeps the last line of it.
type lastLine struct {
	w    io.Writer
	text string
}

// Write passes on.
func (l *lastLine) Write(p []byte) (int, error) {
	if lines := strings.Split(strings.TrimSpace(string(p)), "\n"); lines[len(lines)-1] != "" {
		l.text = lines[len(lines)-1]
	}
	return l.w.Write(p)
}
