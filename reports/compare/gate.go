package compare

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"path/filepath"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Gate judges the comparison in dir again, from the histories of its runs, and writes nothing. Reference and budget are those of its
// compare.json, unless o has others. Of the numbers in that file none is used. All runs are opened before the first is judged: a record that
// was changed, that is not the one that compare.json names, or that stands for two runs is a record.DamageError. A rule of the budget that names
// what a run lacks is an analysis.RuleError.
func Gate(ctx context.Context, dir string, key ed25519.PublicKey, o Options) (*Comparison, error) {
	before, o, err := readAgain(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	histories, err := openRuns(dir, before, key)
	if err != nil {
		return nil, err
	}
	if err := sameRuns(dir, before, histories); err != nil {
		return nil, err
	}
	return before.again(o, histories, func(h *record.History, path string) (Run, error) {
		report, err := analysis.Judge(h, o.Budget)
		if err != nil {
			return Run{}, err
		}
		return Judged(h, report, path, nil)
	})
}

// readAgain reads the comparison in dir, whose reference and budget hold where o has none.
func readAgain(ctx context.Context, dir string, o Options) (*Comparison, Options, error) {
	before, err := Read(ctx, filepath.Join(dir, File))
	if err != nil {
		return nil, o, err
	}
	o.Against, o.Budget, o.Kernels = cmp.Or(o.Against, before.Reference), cmp.Or(o.Budget, before.Budget), before.Kernels
	return before, o, nil
}

// again compares the runs anew, with the entries that judge makes of their records. path is that of the run's report.
func (c *Comparison) again(o Options, histories [][]*record.History, judge func(h *record.History, path string) (Run, error)) (*Comparison, error) {
	subjects := make([]Subject, len(c.Subjects))
	for i, s := range c.Subjects {
		subjects[i].Subject = s.Subject
		for j, r := range s.Runs {
			run, err := judge(histories[i][j], r.Report)
			if err != nil {
				return nil, err
			}
			subjects[i].Runs = append(subjects[i].Runs, run)
		}
	}
	now, err := New(c.Scenario, subjects, o)
	if err != nil {
		return nil, err
	}
	now.Command = c.Command
	return now, nil
}

// openRuns opens the records of all runs of a comparison, by subject.
func openRuns(dir string, c *Comparison, key ed25519.PublicKey) ([][]*record.History, error) {
	histories := make([][]*record.History, len(c.Subjects))
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			h, err := openRun(dir, s.Subject, r, key)
			if err != nil {
				return nil, err
			}
			histories[i] = append(histories[i], h)
		}
	}
	return histories, nil
}

func openRun(dir, subject string, r Run, key ed25519.PublicKey) (*record.History, error) {
	h, err := record.OpenSigned(filepath.Join(dir, filepath.Dir(r.Report)), key)
	if err != nil {
		return nil, fmt.Errorf("comparing %s with seed %d: %w; copy the folder with all of its runs", subject, r.Seed, err)
	}
	return h, nil
}

// sameRuns checks that each record is the one that compare.json names, and that none stands for two runs.
func sameRuns(dir string, c *Comparison, histories [][]*record.History) error {
	seen := map[string]bool{}
	for i, s := range c.Subjects {
		for j, r := range s.Runs {
			sum, err := historyOf(histories[i][j], r.HistorySha256)
			if err != nil {
				return err
			}
			if seen[sum] {
				return &record.DamageError{Folder: filepath.Join(dir, filepath.Dir(r.Report)),
					Reason: fmt.Sprintf("%s has the same history for two runs, also for %s with seed %d", File, s.Subject, r.Seed)}
			}
			seen[sum] = true
		}
	}
	return nil
}

// historyOf returns the hash of a record, which is that of the results if they name one.
func historyOf(h *record.History, named string) (string, error) {
	if named != "" {
		return named, h.Match(named)
	}
	origin, err := h.Origin()
	return origin.HistorySha256, err
}
