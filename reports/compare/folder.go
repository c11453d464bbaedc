package compare

import (
	"bytes"
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
	h, err := openRun(dir, subject, r, key)
	if err != nil {
		return nil, err
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
	before, o, err := readAgain(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(before.Subjects, func(s Subject) bool { return s.Subject == o.Against }) {
		return nil, fmt.Errorf("comparing against %s: %s has no such subject", o.Against, filepath.Join(dir, File))
	}
	histories, err := openRuns(dir, before, key)
	if err != nil {
		return nil, err
	}
	c, err := before.again(o, histories, func(h *record.History, path string) (Run, error) {
		report, err := reports.WriteAll(filepath.Join(dir, filepath.Dir(path)), h)
		if err != nil {
			return Run{}, err
		}
		return Judged(h, report, path, o.Budget)
	})
	if err != nil {
		return nil, err
	}
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
