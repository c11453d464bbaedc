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

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

var resultsDir = flag.String("results", "", "folder that gets SUITE.json, what each of the suite's runs came to; empty for none")

// JointVersion is the version of a joint report.
const JointVersion = 1

// Joint is what the runs of a suite came to, with the hashes of their histories: what whoever repeats one with the same program
// must get.
type Joint struct {
	SchemaVersion int        `json:"schemaVersion"`
	Suite         string     `json:"suite"`
	Runs          []JointRun `json:"runs"` // in order of scenario, parameters, subject and seed
}

// JointRun is one run of a suite. Its report was in a folder that the suite removed: Command makes it again.
type JointRun struct {
	Scenario string `json:"scenario"`
	Command  string `json:"command"`
	Subject  string `json:"subject"`
	reports.ComparedRun
}

// begun are the runs of this process, for the joint report.
var begun struct {
	sync.Mutex
	runs []*Future
}

// In parallel processes, each of which has runs of its own, that of the first is written. A suite whose specs begin no runs, as that of
// what changes cost, has no joint report.
var _ = ginkgo.ReportAfterSuite("the joint report", func(r ginkgo.Report) {
	if *resultsDir == "" {
		return
	}
	begun.Lock()
	defer begun.Unlock()
	var runs []JointRun
	for _, f := range begun.runs {
		<-f.done
		if !errors.Is(f.err, context.Canceled) { // interrupted, because its spec was
			runs = append(runs, f.joint)
		}
	}
	if len(runs) == 0 {
		return
	}
	if err := NewJoint(r.SuiteDescription, runs).Write(*resultsDir); err != nil {
		ginkgo.Fail(err.Error())
	}
})

// jointOf is a run's part of the joint report. One that came to no good end is in it as invalid.
func newJointRun(o run.Options, result *run.Result) JointRun {
	j := JointRun{Scenario: o.Scenario, Subject: o.Subject, ComparedRun: reports.InvalidRun(o.Seed, "", "")}
	if result == nil || result.Report == nil {
		return j
	}
	j.Scenario = result.Report.Run.Scenario // a replay's options have none
	j.ComparedRun = reports.ComparedRunOf(result.Report, "", result.HistorySha256)
	if h, err := record.OpenHistory(result.Dir); err == nil {
		j.Command = h.Run.Command
	}
	if file, ok := strings.CutPrefix(o.Subject, "exec:"); ok { // its folder is gone with the suite
		j.Subject = "exec:" + filepath.Base(file)
		j.Command = strings.ReplaceAll(j.Command, o.Subject, j.Subject)
	}
	return j
}

// NewJoint puts runs in their order: one that does not depend on which of them came first to its end.
func NewJoint(suite string, runs []JointRun) *Joint {
	slices.SortFunc(runs, func(a, b JointRun) int {
		return cmp.Or(cmp.Compare(a.title(), b.title()), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Seed, b.Seed),
			cmp.Compare(a.Command, b.Command))
	})
	return &Joint{SchemaVersion: JointVersion, Suite: suite, Runs: runs}
}

func (j JointRun) title() string { return reports.TitleOf(j.Scenario, j.Command) }

// Write writes a joint report into a folder, as SUITE.json: whole or not at all.
func (j *Joint) Write(dir string) error {
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("making the joint report of %s: %w", j.Suite, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the joint report of %s: %w", j.Suite, err)
	}
	file := filepath.Join(dir, j.Suite+".json")
	if err := cache.WriteFile(file, append(data, '\n')); err != nil {
		return fmt.Errorf("writing the joint report of %s: %w", j.Suite, err)
	}
	return nil
}

// ReadJoint reads a joint report.
func ReadJoint(file string) (*Joint, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a joint report: %w", err)
	}
	var j Joint
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&j); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `make nightly` writes it again", file, err)
	}
	if j.SchemaVersion != JointVersion || len(j.Runs) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %d runs; this program reads version %d; `make nightly` writes it again",
			file, j.SchemaVersion, len(j.Runs), JointVersion)
	}
	return &j, nil
}

// WriteTable writes joint reports as one Markdown table, a row for each run.
func WriteTable(w io.Writer, all []*Joint) error {
	var rows []*reports.Comparison
	for _, j := range all {
		for _, r := range j.Runs {
			rows = append(rows, &reports.Comparison{Scenario: r.Scenario, Command: r.Command,
				Subjects: []reports.ComparedSubject{{Subject: r.Subject, Runs: []reports.ComparedRun{r.ComparedRun}}}})
		}
	}
	return reports.WriteRuns(w, rows)
}
