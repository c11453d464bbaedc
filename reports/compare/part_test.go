package compare

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Parts that were written and read again make the comparison of all runs, whatever runs each has.
func TestPartsMakeTheWholeComparison(t *testing.T) {
	var subjects []Subject
	for _, name := range []string{"a", "b"} {
		s := Subject{Subject: name}
		for seed := range int64(5) {
			s.Runs = append(s.Runs, Run{Seed: seed + 1, Verdict: analysis.Pass, Attempts: 100, Dropped: int(seed), Report: fmt.Sprintf("%s-seed-%d/report.json", name, seed+1)})
		}
		subjects = append(subjects, s)
	}
	o := Options{Against: "b"}
	want, err := New("rollout", subjects, o)
	if err != nil {
		t.Fatal(err)
	}
	want.Command = "hitless compare rollout"
	for n := 1; n <= 6; n++ {
		var parts []Part
		for i := range n {
			own := []Subject{{Subject: "a"}, {Subject: "b"}}
			for at, s := range subjects {
				for j, r := range s.Runs {
					if (2*j+at)%n == i {
						own[at].Runs = append(own[at].Runs, r)
					}
				}
			}
			dir := t.TempDir()
			if err := WritePart(dir, NewPart("rollout", want.Command, own, o)); err != nil {
				t.Fatal(err)
			}
			p, err := ReadPart(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
		got, err := JoinParts(parts)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d parts (-whole +joined):\n%s", n, diff)
		}
	}
	if _, err := ReadPart(t.Context(), t.TempDir()); err == nil {
		t.Error("a folder without a part was read")
	}
}

// Runs that were judged by another budget make no verdict together.
func TestPartsWithOtherBudgetsAreNotJoined(t *testing.T) {
	part := func(o Options) Part {
		return NewPart("rollout", "hitless compare rollout", []Subject{{Subject: "a", Runs: []Run{{Seed: 1, Verdict: analysis.Pass, Attempts: 100}}}, {Subject: "b", Runs: []Run{{Seed: 1, Verdict: analysis.Pass, Attempts: 100}}}}, o)
	}
	budget := func(dropped int) *record.Budget {
		return &record.Budget{Dropped: dropped}
	}
	if _, err := JoinParts([]Part{part(Options{Budget: budget(0)}), part(Options{Budget: budget(0)})}); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]Options{"another budget": {Budget: budget(1000)}, "none": {}, "another reference": {Budget: budget(0), Against: "b"}, "kernels": {Budget: budget(0), Kernels: true}} {
		if _, err := JoinParts([]Part{part(Options{Budget: budget(0)}), part(other)}); err == nil {
			t.Errorf("a part with %s was joined", name)
		}
	}
}

// A part with fewer subjects, or in another order, would give runs to another subject.
func TestPartsOfOtherSubjectsAreNotJoined(t *testing.T) {
	part := func(names ...string) Part {
		var subjects []Subject
		for i, name := range names {
			subjects = append(subjects, Subject{Subject: name, Runs: []Run{{Seed: int64(i + 1), Verdict: analysis.Pass, Attempts: 100}}})
		}
		return NewPart("rollout", "hitless compare rollout", subjects, Options{})
	}
	if _, err := JoinParts([]Part{part("a", "b"), part("a", "b")}); err != nil {
		t.Error(err)
	}
	for _, other := range []Part{part("a"), part("b", "a"), part("a", "b", "c")} {
		if _, err := JoinParts([]Part{part("a", "b"), other}); err == nil {
			t.Errorf("a part with the subjects %q was joined", other.names())
		}
	}
}
