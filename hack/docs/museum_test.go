package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// A run that cannot tell is counted on its own: without it a reader would take it for an answer.
func TestTheMuseumCountsWhatCannotTell(t *testing.T) {
	dir := t.TempDir()
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	trigger := e.TriggerSha256()
	row := func(answers string) string {
		answersOf := func(s museum.Specimen) (all []run.BugResult) {
			for i, a := range strings.Split(answers, ",") {
				all = append(all, run.BugResult{Subject: s.Subject, Seed: int64(i + 1), Answer: museum.Answer(a), TriggerSha256: trigger})
			}
			return all
		}
		if err := (results.Answers{Bad: answersOf(e.Bad), Good: answersOf(e.Good)}).Write(bugs.File(dir, "k8s-134147")); err != nil {
			t.Fatal(err)
		}
		text, err := museumTable(dir)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := row("cannot tell,seen,not seen,not seen"); !strings.Contains(text, " 1 of 4, 1 cannot tell ") || !strings.Contains(text, " 2 of 4, 1 cannot tell ") || strings.Contains(text, "0 of 0") {
		t.Error(text)
	}
	if text := row("seen,not seen"); !strings.Contains(text, " 1 of 2 |") {
		t.Error(text)
	}
	trigger = "of an older entry"
	if text := row("seen,not seen"); strings.Contains(text, " of 2 |") || !strings.Contains(text, "was changed after the runs: k8s-134147") {
		t.Error(text)
	}
}

// The committed answers show each bug in its bad version on most seeds and in its good version on none. They never leave one open.
func TestTheCommittedMuseumIsComplete(t *testing.T) {
	pairs := [2]int{} // bugs with a fixed version, and without one
	for _, e := range museum.All() {
		a, err := results.ReadAnswers(t.Context(), bugs.File(top, e.ID))
		if err != nil {
			t.Error(err)
			continue
		}
		bad, good := about(e, e.Bad, a.Bad), about(e, e.Good, a.Good)
		first := slices.ContainsFunc(bad, func(b run.BugResult) bool { return b.Seed == 1 && b.Answer == museum.Seen })
		switch {
		case len(bad) < 4 || !first || run.Count(bad, museum.Seen) < 3 || run.Count(bad, museum.CannotTell) > 0:
			t.Errorf("%s is seen in its bad version on %s seeds, on the first: %v", e.ID, countOf(bad, museum.Seen), first)
		case len(good) < 4 || run.Count(good, museum.NotSeen) != len(good):
			t.Errorf("%s is not seen in its good version on %s seeds", e.ID, countOf(good, museum.NotSeen))
		case e.Unfixed():
			pairs[1]++
		default:
			pairs[0]++
		}
	}
	if pairs[0] < 40 || pairs[1] < 6 {
		t.Errorf("%d bugs with a fixed version and %d without one, want 40 and 6", pairs[0], pairs[1])
	}
}
