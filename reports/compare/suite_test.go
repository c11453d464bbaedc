package compare

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
)

func suiteRun(subject, command string, seed int64, dropped int) SuiteRun {
	return SuiteRun{Scenario: "rollout", Command: command, Subject: subject,
		Run: Run{Seed: seed, Verdict: analysis.Fail, Attempts: 1000, Dropped: dropped, HistorySha256: strings.Repeat("ab", 32)}}
}

// The file does not depend on the order of the runs, and ReadSuite returns the runs in their sorted order.
func TestSuitesRoundTrip(t *testing.T) {
	runs := []SuiteRun{suiteRun("b", "hitless run rollout", 1, 3), suiteRun("a", "hitless run rollout --set x=1 --seed 1", 1, 2), suiteRun("a", "hitless run rollout", 2, 1)}
	dir := t.TempDir()
	if err := NewSuite("first", slices.Clone(runs)).Write(dir); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(runs)
	if err := NewSuite("first", runs).Write(filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	one, _ := os.ReadFile(filepath.Join(dir, "first.json"))
	other, _ := os.ReadFile(filepath.Join(dir, "again", "first.json"))
	if len(one) == 0 || !bytes.Equal(one, other) {
		t.Errorf("the same runs gave two files:\n%s\n%s", one, other)
	}
	r, err := ReadSuite(t.Context(), filepath.Join(dir, "first.json"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Suite != "first" || len(r.Runs) != 3 || r.Runs[0].Dropped != 1 || r.Runs[1].Dropped != 3 || r.Runs[2].Dropped != 2 {
		t.Errorf("read %+v", r)
	}
}

func TestReadSuiteRefusesOtherFiles(t *testing.T) {
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
		if _, err := ReadSuite(t.Context(), file); err == nil || !strings.Contains(err.Error(), "make nightly") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
