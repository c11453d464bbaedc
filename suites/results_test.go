package suites

import (
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
)

// The results include runs without a report, so that the table does not hide them.
func TestRunWithoutReportIsInvalid(t *testing.T) {
	if r := newRunResult(run.Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "bundled"}, Seed: 7}, nil); r.Verdict != analysis.Invalid || r.Subject != "bundled" || r.Seed != 7 {
		t.Errorf("got %+v", r)
	}
}
