package run

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
)

// ComparisonFolder is the folder of a comparison with these options.
func ComparisonFolder(o Options) string {
	return cmp.Or(o.Out, filepath.Join("out", "compare-"+o.Scenario))
}

// Compare runs a scenario against each subject with the seeds 1 to runs. The runs are interleaved, so that changes of this machine
// affect all subjects alike. Seeds are the samples, since runs are deterministic. An invalid run makes the comparison invalid, and the
// other runs go on. Compare writes compare.json, compare.html and compare.md into o.Out, and each run into a folder below it. An earlier
// comparison there stays until the new one is complete. key is as for record.OpenSigned.
func Compare(ctx context.Context, o Options, subjects []string, runs int, key ed25519.PublicKey) (c *compare.Comparison, err error) {
	if len(subjects) < 2 || runs < 1 {
		return nil, usagef("comparing needs two subjects or more, and one run or more; %d subjects and %d runs were given", len(subjects), runs)
	}
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	o.Out = ComparisonFolder(o)
	compared := make([]compare.Subject, len(subjects))
	for i, s := range subjects { // refuse a wrong call before the first run
		one := o
		one.Subject = s
		_, spec, err := one.plan()
		if err != nil {
			return nil, err
		}
		compared[i] = compare.Subject{Subject: spec.String(), Runs: make([]compare.Run, runs)} // for exec:FILE the name without its path
	}
	command := o.compareCommand(subjects, runs)
	folder, err := reports.ClaimComparison(o.Out, command)
	if err != nil {
		return nil, UsageError{Reason: err}
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if _, err := folder.Begin(); err != nil {
		return nil, UsageError{Reason: err}
	}
	if err := o.compareRuns(ctx, folder.Work(), subjects, compared); err != nil {
		return nil, fmt.Errorf("%w; the runs that have ended are in %s until the next comparison", err, folder.Work())
	}
	if c, err = compare.New(o.Scenario, compared); err != nil {
		return nil, err
	}
	c.Command = command
	if err := compare.Write(folder.Work(), c, key); err != nil {
		return nil, err
	}
	return c, folder.Finish()
}

// compareRuns runs each subject with each seed, in folders below dir.
func (o Options) compareRuns(ctx context.Context, dir string, subjects []string, compared []compare.Subject) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, runtime.NumCPU()))
	for seed := 1; seed <= len(compared[0].Runs); seed++ {
		for i, s := range subjects {
			group.Go(func() error {
				one := o
				one.Subject, one.Seed = s, int64(seed)
				name := fmt.Sprintf("%s-seed-%d", strings.NewReplacer("/", "-", "@", "-").Replace(s), seed)
				one.Out = filepath.Join(dir, name)
				one.Progress = progress.Named(name, o.report)
				result, err := Run(ctx, one)
				if invalid := (*InvalidError)(nil); errors.As(err, &invalid) && result != nil {
					one.report(progress.Event{Kind: progress.Message, Text: invalid.Error()})
					compared[i].Runs[seed-1] = compare.InvalidRun(one.Seed, filepath.Join(name, "report.json"), result.HistorySha256)
					return nil
				}
				if err != nil {
					return fmt.Errorf("%s with seed %d: %w", s, seed, err)
				}
				compared[i].Runs[seed-1] = compare.RunOf(result.Report, filepath.Join(name, "report.json"), result.HistorySha256)
				return nil
			})
		}
	}
	return group.Wait()
}

func (o Options) compareCommand(subjects []string, runs int) string {
	words := []string{"hitless compare", o.Scenario}
	for _, s := range subjects {
		words = append(words, "--subject", s)
	}
	return strings.Join(append(words, append([]string{"--runs", strconv.Itoa(runs)}, o.LabOptions.Words(o.call())...)...), " ")
}
