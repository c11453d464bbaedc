package main

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// resultOf is the result of a task's run as hitless writes it.
func resultOf(t task, answer museum.Answer) run.BugResult {
	return run.BugResult{ID: t.entry.ID, Subject: t.specimen.Subject, Set: maps.Clone(t.specimen.Set), Seed: t.seed, TriggerSha256: t.entry.TriggerSha256(), Answer: answer, HistorySha256: "abc"}
}

// A run is done when its answer tells something about the entry as it is now. All others are made again.
func TestAnInterruptedCallContinues(t *testing.T) {
	for _, id := range []string{"k8s-102314", "k8s-134147"} { // a scenario with parameters of its specimens, and a timeline
		e, err := museum.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			change func(b *run.BugResult)
			done   bool
		}{
			"seen":                {func(*run.BugResult) {}, true},
			"not seen":            {func(b *run.BugResult) { b.Answer = museum.NotSeen }, true},
			"cannot tell":         {func(b *run.BugResult) { b.Answer = museum.CannotTell }, false},
			"another subject":     {func(b *run.BugResult) { b.Subject = "bundled" }, false},
			"other parameters":    {func(b *run.BugResult) { b.Set = map[string]string{"cleanup": "off"} }, false},
			"another trigger":     {func(b *run.BugResult) { b.TriggerSha256 = museum.Entry{}.TriggerSha256() }, false},
			"an untold trigger":   {func(b *run.BugResult) { b.TriggerSha256 = "" }, false},
			"a seed of its own":   {func(b *run.BugResult) { b.Seed = 2 }, false},
			"without parameters ": {func(b *run.BugResult) { b.Set = nil }, e.Bad.Set == nil},
		} {
			f, first := &file{}, tasksOf(e, 1)[0]
			b := resultOf(first, museum.Seen)
			c.change(&b)
			f.Bad = []run.BugResult{b}
			left := options{}.missing(map[string]*file{id: f}, specimensOf([]museum.Entry{e}, 1))
			again := slices.ContainsFunc(left, func(t task) bool { return t.kind == bad })
			if again == c.done || len(left) == 0 {
				t.Errorf("%s, %s: runs again: %t", id, name, again)
			}
		}
	}
}

// With a program only its own answers are done.
func TestAnswersOfAnotherProgramAreMadeAnew(t *testing.T) {
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	first := tasksOf(e, 1)[0]
	b := resultOf(first, museum.Seen)
	b.ProgramSha256 = "one"
	f := &file{}
	f.Bad = []run.BugResult{b}
	if !f.has(first, "") || !f.has(first, "one") || f.has(first, "another") {
		t.Error("the program of an answer does not decide whether it is made anew")
	}
}

// Answers of another trigger do not count as the expected ones.
func TestOldAnswersAreNotTheExpectedOnes(t *testing.T) {
	e, err := museum.Find("k8s-134147")
	if err != nil {
		t.Fatal(err)
	}
	f := &file{path: filepath.Join(t.TempDir(), "bug.json")}
	for seed := range int64(2) {
		for _, task := range tasksOf(e, seed+1) {
			answer := map[kind]museum.Answer{bad: museum.Seen, good: museum.NotSeen}[task.kind]
			if err := f.add(task, resultOf(task, answer)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if wrong := f.wrong(e, 2); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	judged := resultOf(tasksOf(e, 2)[1], museum.NotSeen)
	judged.TriggerSha256 = ""
	if err := f.add(tasksOf(e, 2)[1], judged); err != nil || len(f.wrong(e, 2)) > 0 {
		t.Errorf("a record that was judged again lost its trigger: %v", err)
	}
	if wrong := f.wrong(e, 3); len(wrong) != 2 {
		t.Errorf("with a seed that was not run: %q", wrong)
	}
	e.Rate = 1
	if wrong := f.wrong(e, 2); len(wrong) != 2 {
		t.Errorf("answers of another trigger: %q", wrong)
	}
}

// An answer of another subject is kept beside those of others, and replaces its own earlier one.
func TestOtherSubjects(t *testing.T) {
	e, err := museum.Find("k8s-134147") // seen in kube-proxy@v1.34.3/ipvs
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := tasksOn(t.Context(), e, []string{"bundled", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/nftables", e.Bad.Subject, e.Good.Subject}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) != 2 {
		t.Fatalf("%d tasks, want those of the two other subjects in mode ipvs: %+v", len(tasks), tasks)
	}
	f := &file{path: filepath.Join(t.TempDir(), "bug.json")}
	add := func(i int, a museum.Answer) {
		t.Helper()
		if err := f.add(tasks[i], resultOf(tasks[i], a)); err != nil {
			t.Fatal(err)
		}
	}
	add(0, museum.Seen)
	add(1, museum.Seen)
	if len(f.Bad) != 2 || len(f.Good) != 0 || !f.has(tasks[0], "") || !f.has(tasks[1], "") {
		t.Errorf("two subjects with the bug: %+v", f.Answers)
	}
	add(1, museum.NotSeen)
	if len(f.Bad) != 1 || len(f.Good) != 1 || f.Good[0].Subject != tasks[1].specimen.Subject {
		t.Errorf("one that does not have it any more: %+v", f.Answers)
	}
	if got := f.subjects(); !slices.Equal(got, []string{tasks[0].specimen.Subject, tasks[1].specimen.Subject}) {
		t.Errorf("subjects with an answer: %q", got)
	}
	add(1, museum.CannotTell)
	if f.has(tasks[1], "") || len(f.Good) != 1 {
		t.Errorf("a run that cannot tell: %+v", f.Answers)
	}
	add(0, museum.DoesNotApply)
	if len(f.Bad) != 0 {
		t.Errorf("a bug that does not apply: %+v", f.Answers)
	}
}
