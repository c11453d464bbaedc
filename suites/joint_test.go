package suites

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports"
)

func ran(subject, command string, seed int64, dropped int) JointRun {
	return JointRun{Scenario: "rollout", Command: command, Subject: subject,
		ComparedRun: reports.ComparedRun{Seed: seed, Verdict: reports.Fail, Attempts: 1000, Dropped: dropped, HistorySha256: strings.Repeat("ab", 32)}}
}

// The file does not depend on which run was there first, and what was read is what was written.
func TestAJointReportIsReadAsItWasWritten(t *testing.T) {
	runs := []JointRun{ran("b", "hitless run rollout", 1, 3), ran("a", "hitless run rollout --set x=1 --seed 1", 1, 2), ran("a", "hitless run rollout", 2, 1)}
	dir := t.TempDir()
	if err := NewJoint("first", slices.Clone(runs)).Write(dir); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(runs)
	if err := NewJoint("first", runs).Write(filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	one, _ := os.ReadFile(filepath.Join(dir, "first.json"))
	other, _ := os.ReadFile(filepath.Join(dir, "again", "first.json"))
	if len(one) == 0 || !bytes.Equal(one, other) {
		t.Errorf("the same runs gave two files:\n%s\n%s", one, other)
	}
	j, err := ReadJoint(filepath.Join(dir, "first.json"))
	if err != nil {
		t.Fatal(err)
	}
	if j.Suite != "first" || len(j.Runs) != 3 || j.Runs[0].Dropped != 1 || j.Runs[1].Dropped != 3 || j.Runs[2].Dropped != 2 {
		t.Errorf("read %+v", j)
	}
}

// A run that came to no good end is in the report, or a table of nothing but passes would be one of those that lived.
func TestARunWithoutAResultIsInvalid(t *testing.T) {
	if j := newJointRun(run.Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled"}, Seed: 7}, nil); j.Verdict != reports.Invalid || j.Subject != "bundled" || j.Seed != 7 {
		t.Errorf("got %+v", j)
	}
}

func TestAJointReportThatIsNoneIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":      "",
		"a comparison": `{"schemaVersion": 1, "scenario": "rollout", "subjects": []}`,
		"no runs":      `{"schemaVersion": 1, "suite": "x", "runs": []}`,
		"a later one":  `{"schemaVersion": 2, "suite": "x", "runs": [{"scenario": "rollout"}]}`,
	} {
		file := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJoint(file); err == nil || !strings.Contains(err.Error(), "make nightly") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
