package main

import (
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
