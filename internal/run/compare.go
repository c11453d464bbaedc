package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/reports/compare"
)

// ComparisonFolder is the folder of a comparison with these options.
func ComparisonFolder(o Options) string {
	return cmp.Or(o.Out, filepath.Join("out", "compare-"+o.Scenario))
}

// Compare runs a scenario against each subject with the seeds 1 to runs. The runs are interleaved, so that changes of this machine
// affect all subjects alike. Seeds are the samples, since runs are deterministic. An invalid run makes the comparison invalid, and the
// other runs go on. Compare writes compare.json, compare.html and compare.md into o.Out, and each run into a folder below it.
func Compare(ctx context.Context, o Options, subjects []string, runs int) (*compare.Comparison, error) {
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
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, runtime.NumCPU()))
	for seed := 1; seed <= runs; seed++ {
		for i, s := range subjects {
			group.Go(func() error {
				one := o
				one.Subject, one.Seed = s, int64(seed)
				name := fmt.Sprintf("%s-seed-%d", strings.NewReplacer("/", "-", "@", "-").Replace(s), seed)
				one.Out = filepath.Join(o.Out, name)
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
	if err := group.Wait(); err != nil {
		return nil, err
	}
	c, err := compare.New(o.Scenario, compared)
	if err != nil {
		return nil, err
	}
	c.Command = o.compareCommand(subjects, runs)
	return c, compare.Write(o.Out, c)
}

func (o Options) compareCommand(subjects []string, runs int) string {
	words := []string{"hitless compare", o.Scenario}
	for _, s := range subjects {
		words = append(words, "--subject", s)
	}
	return strings.Join(append(words, append([]string{"--runs", strconv.Itoa(runs)}, o.LabOptions.Words(o.call())...)...), " ")
}
