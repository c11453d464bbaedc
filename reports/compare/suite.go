package compare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
)

// SuiteVersion is the schema version of a results file.
const SuiteVersion = 1

// Suite is SUITE.json: the results of a suite's runs with the hashes of their histories. A repetition with the same program gives the same hashes.
type Suite struct {
	SchemaVersion int        `json:"schemaVersion"`
	Suite         string     `json:"suite"`
	Runs          []SuiteRun `json:"runs"` // in order of scenario, parameters, subject and seed
}

// SuiteRun is one run of a suite. Command repeats the run; the suite removes its report.
type SuiteRun struct {
	Scenario string `json:"scenario"`
	Command  string `json:"command"`
	Subject  string `json:"subject"`
	Run
}

// NewSuite sorts runs by scenario, parameters, subject and seed. The order in which they ended has no influence.
func NewSuite(suite string, runs []SuiteRun) *Suite {
	slices.SortFunc(runs, func(a, b SuiteRun) int {
		return cmp.Or(cmp.Compare(a.title(), b.title()), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Seed, b.Seed),
			cmp.Compare(a.Command, b.Command))
	})
	return &Suite{SchemaVersion: SuiteVersion, Suite: suite, Runs: runs}
}

func (r SuiteRun) title() string { return analysis.TitleOf(r.Scenario, r.Command) }

// Write writes SUITE.json into a directory, atomically.
func (r *Suite) Write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results of suite %s: %w", r.Suite, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the results of suite %s: %w", r.Suite, err)
	}
	file := filepath.Join(dir, r.Suite+".json")
	if err := cache.WriteFile(file, append(data, '\n')); err != nil {
		return fmt.Errorf("writing the results of suite %s: %w", r.Suite, err)
	}
	return nil
}

// ReadSuite reads a results file. It refuses unknown fields, other versions and files without runs.
func ReadSuite(ctx context.Context, file string) (*Suite, error) {
	data, err := input.Read(ctx, file, input.ReportBytes)
	if err != nil {
		return nil, fmt.Errorf("reading suite results: %w", err)
	}
	var r Suite
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `make nightly` writes it again", file, err)
	}
	if r.SchemaVersion != SuiteVersion || len(r.Runs) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %d runs, want version %d and at least one run; `make nightly` writes it again",
			file, r.SchemaVersion, len(r.Runs), SuiteVersion)
	}
	return &r, nil
}

// WriteSuites writes the results of suites as one Markdown table with a row for each run.
func WriteSuites(w io.Writer, all []*Suite) error {
	var rows []*Comparison
	for _, suite := range all {
		for _, r := range suite.Runs {
			rows = append(rows, &Comparison{Scenario: r.Scenario, Command: r.Command,
				Subjects: []Subject{{Subject: r.Subject, Runs: []Run{r.Run}}}})
		}
	}
	return WriteRuns(w, rows)
}
