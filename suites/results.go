package suites

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/onsi/ginkgo/v2"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/compare"
)

var resultsDir = flag.String("results", "", "directory for SUITE.json, the results of the suite's runs; not written when empty")

// ResultsVersion is the schema version of a results file.
const ResultsVersion = 1

// Results are the results of a suite's runs with the hashes of their histories. A repetition with the same program gives the same hashes.
type Results struct {
	SchemaVersion int         `json:"schemaVersion"`
	Suite         string      `json:"suite"`
	Runs          []RunResult `json:"runs"` // in order of scenario, parameters, subject and seed
}

// RunResult is one run of a suite. Command repeats the run; the suite removes its report.
type RunResult struct {
	Scenario string `json:"scenario"`
	Command  string `json:"command"`
	Subject  string `json:"subject"`
	compare.Run
}

// started holds the runs of this process for the results file.
var started struct {
	sync.Mutex
	runs []*Future
}

// With parallel processes only the first one's runs are written. A suite that starts no runs, such as cost, has no results file.
var _ = ginkgo.ReportAfterSuite("results file", func(r ginkgo.Report) {
	if *resultsDir == "" {
		return
	}
	started.Lock()
	defer started.Unlock()
	var runs []RunResult
	for _, f := range started.runs {
		<-f.done
		if !errors.Is(f.err, context.Canceled) { // the spec was interrupted
			runs = append(runs, f.runResult)
		}
	}
	if len(runs) == 0 {
		return
	}
	if err := NewResults(r.SuiteDescription, runs).Write(*resultsDir); err != nil {
		ginkgo.Fail(err.Error())
	}
})

// newRunResult returns the entry of a run. A run without a report is invalid.
func newRunResult(o run.Options, result *run.Result) RunResult {
	r := RunResult{Scenario: o.Scenario, Subject: o.Subject, Run: compare.InvalidRun(o.Seed, "", "")}
	if result == nil || result.Report == nil {
		return r
	}
	r.Scenario = result.Report.Run.Scenario // the options of a replay have no scenario
	r.Run = compare.RunOf(result.Report, "", result.HistorySha256)
	if h, err := record.OpenHistory(result.Dir); err == nil {
		r.Command = h.Run.Command
	}
	if file, ok := strings.CutPrefix(o.Subject, "exec:"); ok { // the suite removes the directory
		r.Subject = "exec:" + filepath.Base(file)
		r.Command = strings.ReplaceAll(r.Command, o.Subject, r.Subject)
	}
	return r
}

// NewResults sorts runs by scenario, parameters, subject and seed. The order in which they ended has no influence.
func NewResults(suite string, runs []RunResult) *Results {
	slices.SortFunc(runs, func(a, b RunResult) int {
		return cmp.Or(cmp.Compare(a.title(), b.title()), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Seed, b.Seed),
			cmp.Compare(a.Command, b.Command))
	})
	return &Results{SchemaVersion: ResultsVersion, Suite: suite, Runs: runs}
}

func (r RunResult) title() string { return analysis.TitleOf(r.Scenario, r.Command) }

// Write writes SUITE.json into a directory, atomically.
func (r *Results) Write(dir string) error {
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

// ReadResults reads a results file. It refuses unknown fields, other versions and files without runs.
func ReadResults(file string) (*Results, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading suite results: %w", err)
	}
	var r Results
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `make nightly` writes it again", file, err)
	}
	if r.SchemaVersion != ResultsVersion || len(r.Runs) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %d runs, want version %d and at least one run; `make nightly` writes it again",
			file, r.SchemaVersion, len(r.Runs), ResultsVersion)
	}
	return &r, nil
}

// WriteTable writes the results of suites as one Markdown table with a row for each run.
func WriteTable(w io.Writer, all []*Results) error {
	var rows []*compare.Comparison
	for _, suite := range all {
		for _, r := range suite.Runs {
			rows = append(rows, &compare.Comparison{Scenario: r.Scenario, Command: r.Command,
				Subjects: []compare.Subject{{Subject: r.Subject, Runs: []compare.Run{r.Run}}}})
		}
	}
	return compare.WriteRuns(w, rows)
}
