package compare

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// The files of a comparison.
const (
	File        = "compare.json"
	PageFile    = "compare.html"
	SummaryFile = "compare.md"
)

// IsComparison reports whether a folder holds a comparison.
func IsComparison(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, File))
	return err == nil
}

// Write writes compare.json, compare.html and compare.md into dir, together or not at all. dir holds the compared runs, and the
// paths of runs in the comparison are relative to it. The files depend only on the comparison and the histories of the runs.
// key is as for record.OpenSigned.
func Write(dir string, c *Comparison, key ed25519.PublicKey) error {
	subjects := make([][]runCourse, len(c.Subjects))
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			a, err := analysisOf(dir, s.Subject, r, key)
			if err != nil {
				return err
			}
			subjects[i] = append(subjects[i], runCourse{r, courseOf(a)})
		}
	}
	var files []cache.File
	for _, form := range [...]struct {
		file  string
		write func(io.Writer) error
	}{
		{File, func(w io.Writer) error { return WriteJSON(w, c) }},
		{PageFile, func(w io.Writer) error { return c.writePage(w, subjects) }},
		{SummaryFile, func(w io.Writer) error { return WriteMarkdown(w, c) }},
	} {
		var b bytes.Buffer
		if err := form.write(&b); err != nil {
			return fmt.Errorf("making %s: %w", form.file, err)
		}
		files = append(files, cache.File{Name: form.file, Data: b.Bytes()})
	}
	return cache.WriteFiles(dir, files)
}

func analysisOf(dir, subject string, r Run, key ed25519.PublicKey) (*analysis.Analysis, error) {
	h, err := record.OpenSigned(filepath.Join(dir, filepath.Dir(r.Report)), key)
	if err != nil {
		return nil, fmt.Errorf("comparing %s with seed %d: %w; copy the folder with all of its runs", subject, r.Seed, err)
	}
	a, err := analysis.New(h)
	if err != nil {
		return nil, analysis.Unreadable(h, err)
	}
	return a, nil
}

// Again computes a comparison and the reports of its runs from the histories, and writes all of their files. The compare.json in dir
// gives the subjects and the paths of the runs, and the reference and the budget if o has none. Nothing is written when a run is damaged.
func Again(ctx context.Context, dir string, key ed25519.PublicKey, o Options) (*Comparison, error) {
	before, err := Read(ctx, filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	o.Against = cmp.Or(o.Against, before.Reference)
	o.Budget = cmp.Or(o.Budget, before.Budget)
	if !slices.ContainsFunc(before.Subjects, func(s Subject) bool { return s.Subject == o.Against }) {
		return nil, fmt.Errorf("comparing against %s: %s has no such subject", o.Against, filepath.Join(dir, File))
	}
	histories, err := openRuns(dir, before, key)
	if err != nil {
		return nil, err
	}
	subjects := make([]Subject, len(before.Subjects))
	for i, s := range before.Subjects {
		subjects[i].Subject = s.Subject
		for j, r := range s.Runs {
			report, err := reports.WriteAll(filepath.Join(dir, filepath.Dir(r.Report)), histories[i][j])
			if err != nil {
				return nil, err
			}
			run, err := Judged(histories[i][j], report, r.Report, o.Budget)
			if err != nil {
				return nil, err
			}
			subjects[i].Runs = append(subjects[i].Runs, run)
		}
	}
	c, err := New(before.Scenario, subjects, o)
	if err != nil {
		return nil, err
	}
	c.Command = before.Command
	return c, Write(dir, c, key)
}

// Judged makes the entry of a run from its history and report. A budget judges the run again, unless it is nil. path is as for RunOf.
func Judged(h *record.History, r *analysis.Report, path string, budget *record.Budget) (Run, error) {
	origin, err := h.Origin()
	if err == nil && budget != nil {
		r, err = analysis.Judge(h, budget)
	}
	if err != nil {
		return Run{}, err
	}
	return RunOf(r, path, origin.HistorySha256), nil
}
