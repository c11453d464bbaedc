package suites

import (
	"context"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports/compare"
)

// A run without a report is invalid.
func TestRunWithoutReportIsInvalid(t *testing.T) {
	if r := newRunResult("run", run.Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled"}, Seed: 7}, nil); r.Verdict != analysis.Invalid || r.Subject != "bundled" || r.Seed != 7 {
		t.Errorf("got %+v", r)
	}
}

// The results file has each run that has a history, and no two with the same command: a row can be repeated only by the command of its own.
func TestResultsHaveACommandOfTheirOwn(t *testing.T) {
	ended := func(name, command, history string, err error) *Future {
		f := &Future{done: make(chan struct{}), name: name, err: err, runResult: compare.SuiteRun{Command: command, Run: compare.Run{HistorySha256: history}}}
		close(f.done)
		return f
	}
	const rollout, drain = "hitless run rollout", "hitless run drain"
	got := kept([]*Future{ended("first", rollout, "aa", nil), ended("did not start", "", "", nil), ended("again", rollout, "aa", nil), ended("stopped", rollout, "aa", context.Canceled),
		ended("drain", drain, "bb", nil)})
	want := []string{rollout, rollout + " --out again", drain}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, r := range got {
		if r.Command != want[i] {
			t.Errorf("run %d has the command %q, want %q", i, r.Command, want[i])
		}
	}
}
