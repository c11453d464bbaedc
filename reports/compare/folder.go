package compare

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
// gives the subjects and the paths of the runs. Nothing is written when a run is damaged.
func Again(ctx context.Context, dir string, key ed25519.PublicKey) (*Comparison, error) {
	before, err := Read(ctx, filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	histories := make([][]*record.History, len(before.Subjects))
	for i, s := range before.Subjects {
		for _, r := range s.Runs {
			h, err := record.OpenSigned(filepath.Join(dir, filepath.Dir(r.Report)), key)
			if err != nil {
				return nil, fmt.Errorf("comparing %s with seed %d again: %w; copy the folder with all of its runs", s.Subject, r.Seed, err)
			}
			histories[i] = append(histories[i], h)
		}
	}
	subjects := make([]Subject, len(before.Subjects))
	for i, s := range before.Subjects {
		subjects[i].Subject = s.Subject
		for j, r := range s.Runs {
			report, err := reports.WriteAll(filepath.Join(dir, filepath.Dir(r.Report)), histories[i][j])
			if err != nil {
				return nil, err
			}
			origin, err := histories[i][j].Origin()
			if err != nil {
				return nil, err
			}
			subjects[i].Runs = append(subjects[i].Runs, RunOf(report, r.Report, origin.HistorySha256))
		}
	}
	c, err := New(before.Scenario, subjects)
	if err != nil {
		return nil, err
	}
	c.Command = before.Command
	return c, Write(dir, c, key)
}
