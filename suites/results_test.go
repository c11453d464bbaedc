package suites

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports/compare"
)

func newRun(subject, command string, seed int64, dropped int) RunResult {
	return RunResult{Scenario: "rollout", Command: command, Subject: subject,
		Run: compare.Run{Seed: seed, Verdict: analysis.Fail, Attempts: 1000, Dropped: dropped, HistorySha256: strings.Repeat("ab", 32)}}
}

// The file does not depend on the order of the runs, and ReadResults returns the runs in their sorted order.
func TestResultsRoundTrip(t *testing.T) {
	runs := []RunResult{newRun("b", "hitless run rollout", 1, 3), newRun("a", "hitless run rollout --set x=1 --seed 1", 1, 2), newRun("a", "hitless run rollout", 2, 1)}
	dir := t.TempDir()
	if err := NewResults("first", slices.Clone(runs)).Write(dir); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(runs)
	if err := NewResults("first", runs).Write(filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	one, _ := os.ReadFile(filepath.Join(dir, "first.json"))
	other, _ := os.ReadFile(filepath.Join(dir, "again", "first.json"))
	if len(one) == 0 || !bytes.Equal(one, other) {
		t.Errorf("the same runs gave two files:\n%s\n%s", one, other)
	}
	r, err := ReadResults(filepath.Join(dir, "first.json"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Suite != "first" || len(r.Runs) != 3 || r.Runs[0].Dropped != 1 || r.Runs[1].Dropped != 3 || r.Runs[2].Dropped != 2 {
		t.Errorf("read %+v", r)
	}
}

// The results include runs without a report, so that the table does not hide them.
func TestRunWithoutReportIsInvalid(t *testing.T) {
	if r := newRunResult(run.Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled"}, Seed: 7}, nil); r.Verdict != analysis.Invalid || r.Subject != "bundled" || r.Seed != 7 {
		t.Errorf("got %+v", r)
	}
}

func TestReadResultsRefusesOtherFiles(t *testing.T) {
	for name, text := range map[string]string{
		"empty file":   "",
		"comparison":   `{"schemaVersion": 1, "scenario": "rollout", "subjects": []}`,
		"no runs":      `{"schemaVersion": 1, "suite": "x", "runs": []}`,
		"next version": `{"schemaVersion": 2, "suite": "x", "runs": [{"scenario": "rollout"}]}`,
	} {
		file := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResults(file); err == nil || !strings.Contains(err.Error(), "make nightly") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
