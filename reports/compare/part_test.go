package compare

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hitless/hitless/analysis"
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
