package bugs

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/mutants"
)

// A bug runs what the suite has about its features, over IPv4, and nothing else. Each has a twin.
func TestKillsRunWhatIsAboutTheirFeatures(t *testing.T) {
	wanted := map[string][]string{"k8s-117205": {"flap"}, "k8s-106497": {"policy-internal"}, "k8s-134147": {"interference-flush", "interference-stale-allow"}, "k8s-59976": nil}
	for _, k := range Kills(museum.All()) {
		if k.Mutant.Twin != k.Good.Subject || k.Mutant.Twin == "" {
			t.Errorf("%s has the twin %q", k.ID, k.Mutant.Twin)
		}
		if want, is := wanted[k.ID]; is && !slices.Equal(k.Mutant.Runs, want) {
			t.Errorf("%s runs %q, want %q", k.ID, k.Mutant.Runs, want)
		}
		delete(wanted, k.ID)
	}
	if len(wanted) > 0 {
		t.Errorf("not looked at: %v", wanted)
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
