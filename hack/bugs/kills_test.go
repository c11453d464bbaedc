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

// The steps of a timeline choose the disruptions that do the same.
func TestRunsOfTimelines(t *testing.T) {
	for id, want := range map[string]string{"k8s-106030": "policy-affinity", "k8s-106497": "policy-internal", "k8s-122614": "policy-ranges", "k8s-103857": "interference-flush",
		"k8s-96251": "policy-type", "k8s-141371": "recreate-node-port"} {
		e, err := museum.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if runs := runsOf(e); !slices.Contains(runs, want) || slices.Contains(runs, "policy-ranges") != (want == "policy-ranges") {
			t.Errorf("%s has the runs %q, want %s", id, runs, want)
		}
	}
}

// Only the specs whose source is the bug may have been written for it.
func TestSpecsThatNameABug(t *testing.T) {
	for id, want := range map[string][]string{"k8s-92019": {"restart-ready new"}, "k8s-91236": {"recreate-node-port datagrams"}, "k8s-134147": nil} {
		e, err := museum.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range conformance.Catalog() {
			if NamesBug(s, e) {
				got = append(got, s.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("specs that name %s: %q, want %q", id, got, want)
		}
	}
}
