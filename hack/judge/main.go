// Command judge answers questions of scripts about results. It decides from the parsed files: what it cannot read is no yes. It is run from
// the top of the tree.
//
//	judge valid COMPARISON        no run of the comparison is invalid or skipped
//	judge whole FOLDER            the conformance suite in the folder has judged each of its specs
//	judge confirmed FILE...       each verification confirms its run; prints the files of those that do not
//	judge first COMPARISON RUN    the folder or the report of a run is the first run of the comparison's first subject
//
// Exit codes: 0 yes, 1 no, 2 wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	question, files := "", args
	if len(args) > 0 {
		question, files = args[0], args[1:]
	}
	var err error
	switch {
	case question == "valid" && len(files) == 1:
		err = valid(ctx, files[0])
	case question == "whole" && len(files) == 1:
		err = whole(ctx, files[0])
	case question == "confirmed" && len(files) > 0:
		err = allConfirmed(ctx, files, stdout)
	case question == "first" && len(files) == 2:
		err = first(ctx, files[0], files[1])
	default:
		fmt.Fprintf(stderr, "judge: %q is no question: valid COMPARISON, whole FOLDER, confirmed FILE..., first COMPARISON RUN\n", args)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "judge:", err)
		return 1
	}
	return 0
}

// valid returns nil if each run of a comparison measured.
func valid(ctx context.Context, file string) error {
	c, err := compare.Read(ctx, file)
	if err != nil {
		return err
	}
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			if !slices.Contains([]analysis.Verdict{analysis.Pass, analysis.Fail}, r.Verdict) {
				return fmt.Errorf("%s: the run of %s with seed %d is %q", file, s.Subject, r.Seed, r.Verdict)
			}
		}
	}
	if c.Verdict == analysis.Invalid {
		return fmt.Errorf("%s is invalid: %v", file, c.Reasons)
	}
	return nil
}

// whole returns nil if each spec of a report has a run that judges it, or skips. An early end, or an error of the machine, leaves specs without one.
func whole(ctx context.Context, dir string) error {
	r, err := conformance.Read(ctx, dir, nil)
	if err != nil {
		return err
	}
	if r.Ended != "" {
		return fmt.Errorf("%s ended early: %s", dir, r.Ended)
	}
	if len(r.Specs) == 0 {
		return fmt.Errorf("%s has no spec", dir)
	}
	for _, s := range r.Specs {
		judged := s.State == conformance.Passed || s.State == conformance.Failed || s.State == conformance.Skipped
		if !judged && s.Run == "" {
			return fmt.Errorf("%s: no run judges the spec %q, which is %s", dir, s.Name, s.State)
		}
	}
	return nil
}

// allConfirmed prints the files of verifications that do not confirm their runs, and of those that cannot be read.
func allConfirmed(ctx context.Context, files []string, stdout io.Writer) (errs error) {
	for _, file := range files {
		if err := confirmed(ctx, file); err != nil {
			fmt.Fprintln(stdout, file)
			errs = errors.Join(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errs
}

func confirmed(ctx context.Context, file string) error {
	r, err := results.ReadVerified(ctx, file)
	if err != nil {
		return err
	}
	if doubt := r.Doubt(); doubt != "" {
		return errors.New(doubt)
	}
	if n := len(r.Findings) + r.More; n > 0 {
		return fmt.Errorf("%d disagreements", n)
	}
	return nil
}

// first returns nil if a run began when the first run of a comparison did, with the same programs. A report does not have the hash of its history.
func first(ctx context.Context, file, run string) error {
	c, err := compare.Read(ctx, file)
	if err != nil {
		return err
	}
	made, err := madeOf(run)
	if err != nil {
		return err
	}
	if want := c.Subjects[0].Runs[0].Made; made == nil || want == nil || !reflect.DeepEqual(made, want) {
		return fmt.Errorf("%s is not the first run of %s", run, file)
	}
	return nil
}

// madeOf is when and with what a run was made, by its folder or its report; nil if that does not tell.
func madeOf(run string) (*record.Made, error) {
	info, err := os.Stat(run)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return record.MadeIn(os.DirFS(run))
	}
	r, err := analysis.Read(run)
	if err != nil {
		return nil, err
	}
	return r.Made, nil
}
