package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hitless/hitless/hack/bugs"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// file has the answers of one bug: of its specimens, or of other subjects.
type file struct {
	path string
	results.Answers
}

// open reads a file of answers; none if it does not exist.
func open(path string) (*file, error) {
	f := &file{path: path}
	var err error
	if f.Answers, err = results.ReadAnswers(context.Background(), f.path); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return f, err
}

// list is where an answer of a kind of subject belongs. The answer of another subject than the specimens decides.
func (f *file) list(k kind, a museum.Answer) *[]run.BugResult {
	if k == bad || k == other && a == museum.Seen {
		return &f.Bad
	}
	return &f.Good
}

// lists are all that can have answers of a kind of subject.
func (f *file) lists(k kind) []*[]run.BugResult {
	if k == other {
		return []*[]run.BugResult{&f.Bad, &f.Good}
	}
	return []*[]run.BugResult{f.list(k, "")}
}

// of reports whether a result is of the task's specimen.
func (t task) of(b run.BugResult) bool { return bugs.Of(t.specimen, b) }

// subjects are those that have an answer.
func (f *file) subjects() (names []string) {
	for _, b := range slices.Concat(f.Bad, f.Good) {
		if !slices.Contains(names, b.Subject) {
			names = append(names, b.Subject)
		}
	}
	return names
}

// result returns the result of the task's run, if there is one of the entry's trigger.
func (f *file) result(t task) (b run.BugResult, has bool) {
	trigger := t.entry.TriggerSha256()
	for _, list := range f.lists(t.kind) {
		for _, b := range *list {
			if b.Seed == t.seed && t.of(b) && b.TriggerSha256 == trigger {
				return b, true
			}
		}
	}
	return b, false
}

// has reports whether the file has an answer of the task's run that tells something, by a program or by any.
func (f *file) has(t task, program string) bool {
	b, has := f.result(t)
	return has && b.Answer != museum.CannotTell && (program == "" || b.ProgramSha256 == program)
}

// add writes the answer of a run in the place of earlier ones: of the same run, and of other specimens of the kind. A record that was judged
// again keeps its trigger. A bug that does not apply has no run, and no answer is kept.
func (f *file) add(t task, b run.BugResult) error {
	for _, list := range f.lists(t.kind) {
		*list = slices.DeleteFunc(*list, func(old run.BugResult) bool {
			if b.TriggerSha256 == "" && old.HistorySha256 == b.HistorySha256 {
				b.TriggerSha256 = old.TriggerSha256
			}
			return old.Seed == t.seed && t.of(old) || t.kind != other && (old.Seed == t.seed || !t.of(old))
		})
	}
	if b.Answer != museum.DoesNotApply {
		list := f.list(t.kind, b.Answer)
		*list = append(*list, b)
		slices.SortFunc(*list, func(x, y run.BugResult) int {
			return cmp.Or(cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Seed, y.Seed))
		})
	}
	return f.Answers.Write(f.path)
}

// wrong tells which answers are not the expected ones: a bug is seen on all seeds but one, and on no seed of the other subject.
func (f *file) wrong(e museum.Entry, seeds int) (wrong []string) {
	count := map[kind]map[museum.Answer]int{bad: {}, good: {}}
	for seed := range int64(seeds) {
		for _, t := range tasksOf(e, seed+1) {
			b, _ := f.result(t)
			count[t.kind][b.Answer]++
		}
	}
	first, _ := f.result(tasksOf(e, 1)[0])
	if seen := count[bad][museum.Seen]; first.Answer != museum.Seen || seen < max(1, seeds-1) || seen+count[bad][museum.NotSeen] < seeds {
		wrong = append(wrong, fmt.Sprintf("%s: seen in %s on %d of %d seeds", e.ID, e.Bad.Subject, seen, seeds))
	}
	if not := count[good][museum.NotSeen]; not < seeds {
		wrong = append(wrong, fmt.Sprintf("%s: not seen in %s on %d of %d seeds", e.ID, e.Good.Subject, not, seeds))
	}
	return wrong
}
