// Package reports writes the report of a run in each format but the page and the comparison: text, Markdown, JUnit, SVG,
// OpenMetrics, Go benchmarks and conformance.
package reports

import (
	"bytes"
	"fmt"
	"io"

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
// folder that holds history/. All four are functions of the history alone; they are written together or not at all.
func WriteAll(dir string, h *record.History) (*analysis.Report, error) {
	a, err := analysis.New(h)
	if err != nil {
		return nil, analysis.Unreadable(h, err)
	}
	origin, err := h.Origin()
	if err != nil {
		return nil, err
	}
	r := a.Report()
	var files []cache.File
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
	if err := cache.WriteFiles(dir, files); err != nil {
		return nil, err
	}
	return r, nil
}
