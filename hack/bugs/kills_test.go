package bugs

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
)

// A run or a scenario that does not exist would never be measured.
func TestKillsNameRunsOfTheSuite(t *testing.T) {
	known := func(run string) bool {
		return slices.ContainsFunc(conformance.Catalog(), func(s conformance.Spec) bool { return s.Run.Name == run })
	}
	for _, k := range Kills(museum.All()) {
		if bad := slices.IndexFunc(k.Mutant.Runs, func(r string) bool { return !known(r) }); bad >= 0 || k.Mutant.Twin == "" {
			t.Errorf("%s: twin %q, runs %q", k.ID, k.Mutant.Twin, k.Mutant.Runs)
		}
	}
	for scenario := range scenarioRuns {
		if !slices.ContainsFunc(museum.All(), func(e museum.Entry) bool { return e.Scenario == scenario }) {
			t.Errorf("no bug has the scenario %s", scenario)
		}
	}
}
