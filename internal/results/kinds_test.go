package results

import (
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
)

// A repetition of a museum run must have the classes and causes of the kept one. Older files do not tell them.
func TestMuseumRowsTellTheirKinds(t *testing.T) {
	delayed := 0
	old := run.BugResult{ID: "k8s-134147", Answer: museum.Seen, Verdict: "fail", Dropped: 3}
	kept := old
	kept.Delayed, kept.Failures = &delayed, []analysis.Failures{{Lane: "tcp-new", Class: "rejected", Event: "fault"}}
	other := kept
	other.Failures = []analysis.Failures{{Lane: "tcp-new", Class: "reset", Event: "fault"}}
	s := Sampler{Program: "this"}
	if why := s.differs(rowOfBug(kept), rowOfBug(kept)); why != "" {
		t.Errorf("the same run: %s", why)
	}
	if s.differs(rowOfBug(kept), rowOfBug(other)) == "" {
		t.Error("another class is accepted")
	}
	if why := s.differs(rowOfBug(old), rowOfBug(other)); why != "" {
		t.Errorf("an older file: %s", why)
	}
}

// A repetition of a conformance spec must have the classes and causes of the kept one, also where it passes. Older files do not tell them.
func TestConformanceRowsTellTheirKinds(t *testing.T) {
	of := func(class string) *[]analysis.Failures {
		return &[]analysis.Failures{{Lane: "tcp-new", Class: class, Event: "proxy killed", Connections: 3}}
	}
	s := Sampler{Program: "this"}
	for name, c := range map[string]struct {
		state       conformance.State
		kept, again *[]analysis.Failures
		differs     bool
	}{
		"the same":           {conformance.Failed, of("refused"), of("refused"), false},
		"another class":      {conformance.Failed, of("refused"), of("reset"), true},
		"excused failures":   {conformance.Passed, &[]analysis.Failures{}, of("refused"), true},
		"none":               {conformance.Passed, &[]analysis.Failures{}, &[]analysis.Failures{}, false},
		"an older red file":  {conformance.Failed, nil, of("reset"), false},
		"an older green one": {conformance.Passed, nil, of("refused"), false},
	} {
		if why := s.differs(conformanceRow(t, c.state, c.kept), conformanceRow(t, c.state, c.again)); (why != "") != c.differs {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// conformanceRow is the row of a report with one spec.
func conformanceRow(t *testing.T, state conformance.State, failures *[]analysis.Failures) Row {
	t.Helper()
	dir := t.TempDir()
	r := &conformance.Report{APIVersion: "hitless/v1", Kind: "ConformanceSuiteReport", SchemaVersion: conformance.ReportVersion,
		Specs: []conformance.Result{{Name: "restart-term new", State: state, Run: "runs/restart-term", Failures: failures}}}
	if err := conformance.Write(dir, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	rows, err := readConformance(t.Context(), filepath.Join(dir, conformance.File))
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0]
}
