package bugs

import (
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/mutants"
)

// Each bug that no spec finds has a spec that would find it, and no spec that three bugs call for is missing.
func TestBugsThatNoSpecFindsNameOne(t *testing.T) {
	wanted := map[string]bool{}
	for _, w := range Wanted {
		if w.Spec == "" || len(w.Bugs) == 0 || len(w.Bugs) >= 3 {
			t.Errorf("the spec %q would find %d bugs: from three on it is to be built", w.Spec, len(w.Bugs))
		}
		for _, id := range w.Bugs {
			if _, err := museum.Find(id); err != nil || wanted[id] {
				t.Errorf("%s stands there twice, or is no bug: %v", id, err)
			}
			wanted[id] = true
		}
	}
	table, err := mutants.Read(filepath.Join("../..", KillsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kills(museum.All()) {
		if table.StateOf(k.Mutant) == mutants.Survived && len(k.Finds(table)) == 0 && !wanted[k.ID] {
			t.Errorf("no spec finds %s, and Wanted names none that would", k.ID)
		}
	}
}

// Each bug that is not judged has a reason, is a bug with specimens, and is not measured.
func TestUnjudgedBugsAreNotMeasured(t *testing.T) {
	table, err := mutants.Read(filepath.Join("../..", KillsFile))
	if err != nil {
		t.Fatal(err)
	}
	for id, reason := range Unjudged {
		entries, err := Select(id)
		if err != nil || reason == "" {
			t.Fatalf("%s: %q, %v", id, reason, err)
		}
		if kills := Kills(entries); len(kills) != 1 || table.StateOf(kills[0].Mutant) != mutants.NotMeasured {
			t.Errorf("%s is measured, or has no specimens: take it out of Unjudged", id)
		}
	}
}
