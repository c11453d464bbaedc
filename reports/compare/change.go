package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// Change is the number of failures of one kind, for each subject.
type Change struct {
	Kind      analysis.FailureKind
	Seen      []Seen // one entry per subject, in the order of the subjects
	reference int    // its number in Seen
}

// Seen is the number of failures of one kind in the valid runs of one subject.
type Seen struct{ Connections, Runs, Of int }

// Changes lists every kind of failure of the valid runs. A kind is new if the reference does not have it, and gone if no other subject has
// it. New kinds come first, then gone ones, then the others.
func (c *Comparison) Changes() []Change {
	byKind := map[analysis.FailureKind]*Change{}
	for i, s := range c.Subjects {
		for _, r := range s.trusted() {
			for _, f := range r.Failures {
				k := f.Kind()
				if byKind[k] == nil {
					byKind[k] = c.unseen(k)
				}
				seen := &byKind[k].Seen[i]
				seen.Connections += f.Connections
				seen.Runs++
			}
		}
	}
	var all []Change
	for _, k := range slices.SortedFunc(maps.Keys(byKind), analysis.FailureKind.Compare) {
		all = append(all, *byKind[k])
	}
	rank := map[string]int{changeNew: 0, changeGone: 1}
	slices.SortStableFunc(all, func(a, b Change) int {
		in := func(c Change) int {
			if r, ranked := rank[c.Word()]; ranked {
				return r
			}
			return len(rank)
		}
		return cmp.Compare(in(a), in(b))
	})
	return all
}

func (c *Comparison) unseen(k analysis.FailureKind) *Change {
	change := &Change{Kind: k, reference: c.reference()}
	for _, s := range c.Subjects {
		change.Seen = append(change.Seen, Seen{Of: len(s.trusted())})
	}
	return change
}

const (
	changeNew  = "new"
	changeGone = "gone"
)

// Word compares the other subjects with the reference: new, gone or stays.
func (c Change) Word() string {
	others := slices.ContainsFunc(slices.Delete(slices.Clone(c.Seen), c.reference, c.reference+1), func(s Seen) bool { return s.Runs > 0 })
	switch {
	case c.Seen[c.reference].Runs == 0:
		return changeNew
	case !others:
		return changeGone
	}
	return "stays"
}

// String gives the number of failures and of runs that have them, such as 843 in 4 of 4 runs.
func (s Seen) String() string {
	if s.Runs == 0 {
		return "none"
	}
	return fmt.Sprintf("%s in %d of %s", units.Thousands(s.Connections), s.Runs, units.Plural(s.Of, "run"))
}

// changeTexts returns one sentence for each new kind, by subject, and for each gone one.
func (c *Comparison) changeTexts() []string {
	const most = 8
	var texts []string
	for _, change := range c.Changes() {
		switch change.Word() {
		case changeNew:
			for i, seen := range change.Seen {
				if seen.Runs > 0 {
					texts = append(texts, fmt.Sprintf("new with %s: %s: %s.", c.Subjects[i].Subject, change.Kind, seen))
				}
			}
		case changeGone:
			texts = append(texts, fmt.Sprintf("gone: %s: %s had %s.", change.Kind, c.Subjects[change.reference].Subject, change.Seen[change.reference]))
		}
	}
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most], fmt.Sprintf("… %d more that are new or gone.", more))
	}
	return texts
}
