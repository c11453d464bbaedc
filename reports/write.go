// Package reports writes the report of a run in each format but the page and the comparison: text, Markdown, JUnit, SVG,
// OpenMetrics, Go benchmarks and conformance.
package reports

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/page"
)

// The files that WriteAll makes.
const (
	ReportFile  = "report.json"
	PageFile    = "report.html"
	JUnitFile   = "junit.xml"
	SummaryFile = "summary.md"
)

// WriteAll builds the report of a history and writes report.json, report.html, junit.xml and summary.md into dir, the
// folder that holds history/. All four are functions of the history and its seal; they are written together or not at all.
// A record that is not trusted never replaces a report with another verdict than invalid: that is a record.DamageError.
func WriteAll(dir string, h *record.History) (*analysis.Report, error) {
	if why := h.Distrust(); why != "" {
		if old, err := analysis.Read(filepath.Join(dir, ReportFile)); !errors.Is(err, fs.ErrNotExist) && (err != nil || old.Verdict != analysis.Invalid) {
			return nil, &record.DamageError{Folder: dir, Reason: why + "; the reports in the folder are of before, and stay as they are"}
		}
	}
	a, err := analysis.New(h)
	if err != nil {
		return nil, analysis.Unreadable(h, err)
	}
	origin, err := h.Origin()
	if err != nil {
		return nil, err
	}
	r := a.Report()
	files, err := filesOf(a, r, origin, h)
	if err != nil {
		return nil, err
	}
	if err := cache.WriteFiles(dir, files); err != nil {
		return nil, err
	}
	return r, nil
}

// Seal judges the record of a run that has just ended, seals it and writes the files of WriteAll. dir is the folder of the run, key signs the
// seal unless it is nil.
func Seal(dir string, key ed25519.PrivateKey) (*analysis.Report, record.Origin, error) {
	h, err := record.OpenUnsealed(filepath.Join(dir, record.HistoryDir))
	if err != nil {
		return nil, record.Origin{}, err
	}
	a, err := analysis.New(h)
	if err != nil {
		return nil, record.Origin{}, analysis.Unreadable(h, err)
	}
	r := a.Report()
	data, seal, err := record.SealHistory(h.Dir(), r.Sealed(""), key)
	if err != nil {
		return nil, record.Origin{}, err
	}
	origin := record.Origin{Command: h.Run.Command, HistorySha256: seal.HistorySha256}
	files, err := filesOf(a, r, origin, h)
	if err != nil {
		return nil, origin, err
	}
	return r, origin, cache.WriteFiles(dir, append([]cache.File{{Name: record.SealFile, Data: data}}, files...))
}

// SealEarly seals the record of a run that ended early, for a reason, and writes the files of WriteAll about what it recorded. Its verdict is
// invalid. The report is nil where nothing of the record can be read.
func SealEarly(dir, reason string, key ed25519.PrivateKey) (*analysis.Report, record.Origin, error) {
	history := filepath.Join(dir, record.HistoryDir)
	r := &analysis.Report{Verdict: analysis.Invalid}
	h, err := record.OpenUnsealed(history)
	var a *analysis.Analysis
	if err == nil {
		if a, err = analysis.New(h); err == nil {
			a.EndedEarly(reason)
			r = a.Report()
		}
	}
	unreadable := err != nil
	data, seal, err := record.SealHistory(history, r.Sealed(reason), key)
	if err != nil {
		return nil, record.Origin{}, err
	}
	origin := record.Origin{HistorySha256: seal.HistorySha256}
	files := []cache.File{{Name: record.SealFile, Data: data}}
	if unreadable {
		return nil, origin, cache.WriteFiles(dir, files)
	}
	origin.Command = h.Run.Command
	forms, err := filesOf(a, r, origin, h)
	if err != nil {
		return nil, origin, err
	}
	return r, origin, cache.WriteFiles(dir, append(files, forms...))
}

// filesOf makes the files of a report.
func filesOf(a *analysis.Analysis, r *analysis.Report, origin record.Origin, h *record.History) (files []cache.File, err error) {
	for _, form := range [...]struct {
		file  string
		write func(io.Writer) error
	}{
		{ReportFile, func(w io.Writer) error { return analysis.WriteJSON(w, r) }},
		{PageFile, func(w io.Writer) error { return page.Render(a, w, r, origin, h) }},
		{JUnitFile, func(w io.Writer) error { return WriteJUnit(w, r, origin) }},
		{SummaryFile, func(w io.Writer) error { return WriteMarkdown(w, r, origin) }},
	} {
		var b bytes.Buffer
		if err := form.write(&b); err != nil {
			return nil, fmt.Errorf("making %s: %w", form.file, err)
		}
		files = append(files, cache.File{Name: form.file, Data: b.Bytes()})
	}
	return files, nil
}
