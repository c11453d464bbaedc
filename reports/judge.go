package reports

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
)

// Schema is the JSON Schema (2020-12) of report.json.
//
//go:embed schema.json
var Schema []byte

// ComparisonSchema is the JSON Schema (2020-12) of compare.json.
//
//go:embed compare.schema.json
var ComparisonSchema []byte

// The files that WriteAll makes.
const (
	ReportFile  = "report.json"
	PageFile    = "report.html"
	JUnitFile   = "junit.xml"
	SummaryFile = "summary.md"
)

// WriteJSON writes report.json: indented, fields in their fixed order, keys of maps sorted, with a newline at the end.
func WriteJSON(w io.Writer, r *Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// ReadReport reads a report.json of a version that this program knows.
func ReadReport(file string) (*Report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	return ParseReport(data, file)
}

// ParseReport reads a report.json of a version that this program knows; file is its name in errors.
func ParseReport(data []byte, file string) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading the report %s: %w (`hitless report` makes it again from the history)", file, err)
	}
	if r.SchemaVersion != ReportVersion {
		return nil, fmt.Errorf("the report %s has version %d; this program reads version %d", file, r.SchemaVersion, ReportVersion)
	}
	return &r, nil
}

// WriteAll builds the report of a history and writes report.json, report.html, junit.xml and summary.md into dir, the
// folder that holds history/. All four are functions of the history alone; they are written together or not at all.
func WriteAll(dir string, h *record.History) (*Report, error) {
	a, err := analyse(h)
	if err != nil {
		return nil, unreadable(h, err)
	}
	origin, err := h.Origin()
	if err != nil {
		return nil, err
	}
	r := a.report()
	var files []cache.File
	for _, form := range [...]struct {
		file  string
		write func(io.Writer) error
	}{
		{ReportFile, func(w io.Writer) error { return WriteJSON(w, r) }},
		{PageFile, func(w io.Writer) error { return a.writePage(w, r, origin, h) }},
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

// Judge judges a recorded run again. dir is the run's folder or its history; a nil budget means the run's own.
func Judge(dir string, budget *record.Budget) (*Report, error) {
	h, err := record.OpenHistory(dir)
	if err != nil {
		return nil, err
	}
	if budget != nil {
		h.Run.Budget = *budget
	}
	return Build(h)
}

// LoadBudget reads a budget from a YAML file with the fields dropped and delayed, both in connections; a missing field
// is 0. Unknown fields are an error, because a misspelt one would silently judge by 0.
func LoadBudget(file string) (*record.Budget, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the budget: %w", err)
	}
	var b record.Budget
	if err := yaml.UnmarshalStrict(data, &b); err != nil {
		return nil, fmt.Errorf("reading the budget %s: %w (its fields are dropped and delayed, in connections)", file, err)
	}
	if b.Dropped < 0 || b.Delayed < 0 {
		return nil, fmt.Errorf("the budget %s allows a negative loss (dropped %d, delayed %d); 0 is the least", file, b.Dropped, b.Delayed)
	}
	return &b, nil
}
