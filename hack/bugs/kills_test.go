package bugs

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/mutants"
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

// Each bug that specs can find has its features, and no other bug has.
func TestFeaturesOfBugs(t *testing.T) {
	known := map[string]bool{}
	for _, s := range conformance.Catalog() {
		for _, f := range s.Features {
			known[f] = true
		}
	}
	kills := map[string]bool{}
	for _, k := range Kills(museum.All()) {
		kills[k.ID] = true
		if _, has := features[k.ID]; !has {
			t.Errorf("%s has no features", k.ID)
		}
	}
	for id, all := range features {
		for _, f := range all {
			if !known[f] {
				t.Errorf("%s: no spec has the feature %s", id, f)
			}
		}
		if !kills[id] {
			t.Errorf("%s has features, and no specimens that a spec could tell apart", id)
		}
	}
}

// A spec of another feature, which fails with the bug's version too, does not find the bug.
func TestSpecsOfOtherFeaturesFindNothing(t *testing.T) {
	var bug Kill
	for _, k := range Kills(museum.All()) {
		if k.ID == "k8s-111661" { // its specimens are of two minor versions, of which only the later one knows node hints
			bug = k
		}
	}
	table := func(failed ...string) *mutants.Table {
		cell := func(failed ...string) mutants.Cell {
			return mutants.Cell{Run: "routing-ipv4", Program: "p", Failed: failed}
		}
		return &mutants.Table{Rows: []mutants.Row{{Name: bug.Bad.Subject, Cells: []mutants.Cell{cell(failed...)}}, {Name: bug.Good.Subject, Cells: []mutants.Cell{cell()}}}}
	}
	for _, s := range conformance.Catalog() {
		if s.Run.Name != "routing-ipv4" {
			continue
		}
		if finds := bug.Finds(table(s.Name)); len(finds) > 0 != slices.Contains(s.Features, "health-check-node-port") {
			t.Errorf("%s, with the features %q: %d specs find the bug", s.Name, s.Features, len(finds))
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
