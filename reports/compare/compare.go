// Package compare pairs runs of several subjects by seed, says of each subject whether it is better or worse than the reference, and
// writes the comparison.
package compare

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Version is the version of compare.json. Read reads version 1 too.
const Version = 2

// Inconclusive is the verdict of a comparison that cannot tell whether a subject is worse. Its exit code is 3, as of an invalid one.
const Inconclusive analysis.Verdict = "inconclusive"

// Comparison is compare.json: subjects in the same scenario, with the same seeds.
type Comparison struct {
	SchemaVersion int            `json:"schemaVersion"`
	Scenario      string         `json:"scenario"`
	Command       string         `json:"command,omitempty"` // repeats the comparison
	Reference     string         `json:"reference"`         // the subject that the others are compared with
	Mixed         bool           `json:"mixed,omitempty"`   // runs of different programs, kernels or control planes are compared too
	Kernels       bool           `json:"kernels,omitempty"` // subjects are compared on several kernels, each with one in all of its runs
	Budget        *record.Budget `json:"budget,omitempty"`  // that judged the runs; nil for the budget of each run
	Subjects      []Subject      `json:"subjects"`
	Differences   []Difference   `json:"differences"` // of each other subject from the reference; none where Mixed would be needed
	// Verdict is fail when a subject is worse than the reference or fails its budget. Otherwise it is invalid when a run is invalid or
	// lacks its pair, and then inconclusive when a difference is. The budget of the reference counts only when Budget is given.
	Verdict analysis.Verdict `json:"verdict"`
	Reasons []string         `json:"reasons"` // of the verdict, as sentences without a full stop; never empty
}

// Subject is one subject with its runs, in order of their seeds.
type Subject struct {
	Subject string `json:"subject"`
	// Verdict is fail when a run fails. Otherwise it is invalid when a run is invalid or skipped, and then pass.
	Verdict analysis.Verdict `json:"verdict"`
	Runs    []Run            `json:"runs"`
}

// Options are what a comparison is asked for. The zero value compares with the first subject, and refuses runs that were not made alike.
type Options struct {
	Against string // the reference, as Subject.Subject has it; empty for the first subject
	Mixed   bool
	Kernels bool           // as in Comparison
	Budget  *record.Budget // has judged the runs; nil for their own budgets
}

// New pairs the runs of the subjects by seed, and keeps the order of the subjects. Fewer than two subjects, a subject without
// a run, and an unknown reference are errors. The result is deterministic, because the resampling has a fixed seed.
func New(scenario string, subjects []Subject, o Options) (*Comparison, error) {
	if len(subjects) < 2 {
		return nil, fmt.Errorf("comparing %s: %s given, two are needed", scenario, units.Plural(len(subjects), "subject"))
	}
	c := &Comparison{SchemaVersion: Version, Scenario: scenario, Reference: cmp.Or(o.Against, subjects[0].Subject), Mixed: o.Mixed, Kernels: o.Kernels, Budget: o.Budget}
	var names []string
	for _, s := range subjects {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("comparing %s: %s has no run", scenario, s.Subject)
		}
		s.Runs = slices.SortedStableFunc(slices.Values(s.Runs), func(a, b Run) int { return cmp.Compare(a.Seed, b.Seed) })
		c.Subjects, names = append(c.Subjects, s), append(names, s.Subject)
	}
	if !slices.Contains(names, c.Reference) {
		return nil, fmt.Errorf("comparing %s against %s: no subject has this name; the subjects are %s", scenario, c.Reference, strings.Join(names, ", "))
	}
	c.judge()
	return c, nil
}

// reference is the number of the subject that the others are compared with.
func (c *Comparison) reference() int {
	return max(0, slices.IndexFunc(c.Subjects, func(s Subject) bool { return s.Subject == c.Reference }))
}

// judge computes all verdicts from the runs.
func (c *Comparison) judge() {
	for i := range c.Subjects {
		c.Subjects[i].Verdict = verdictOf(c.Subjects[i].Runs)
	}
	c.Differences = []Difference{}
	if unlike := c.unlike(); len(unlike) > 0 && !c.Mixed {
		c.Verdict = analysis.Invalid
		c.Reasons = append(unlike, "such runs are compared only on request: `hitless report DIR --mixed`")
		return
	}
	reference := c.reference()
	for i := range c.Subjects {
		if i != reference {
			c.Differences = append(c.Differences, c.difference(reference, i))
		}
	}
	worse, unclear := c.worse()
	failed, broken := c.overBudget(), append(c.invalidRuns(), c.unpaired()...)
	c.Reasons = slices.Concat(worse, failed, broken, unclear)
	switch {
	case len(worse)+len(failed) > 0:
		c.Verdict = analysis.Fail
	case len(broken) > 0:
		c.Verdict = analysis.Invalid
	case len(unclear) > 0:
		c.Verdict = Inconclusive
	default:
		c.Verdict, c.Reasons = analysis.Pass, []string{c.noneWorse()}
	}
}

// verdictOf is the verdict of a subject.
func verdictOf(runs []Run) analysis.Verdict {
	verdict := analysis.Pass
	for _, r := range runs {
		switch {
		case r.Verdict == analysis.Fail:
			return analysis.Fail
		case !r.valid():
			verdict = analysis.Invalid
		}
	}
	return verdict
}

// worse has a sentence for each subject that is worse than the reference, and for each that may be.
func (c *Comparison) worse() (worse, unclear []string) {
	for _, d := range c.Differences {
		switch d.Verdict {
		case Worse:
			worse = append(worse, fmt.Sprintf("%s is worse than %s: %s", d.Subject, c.Reference, strings.Join(d.because(Worse), "; ")))
		case Unclear:
			unclear = append(unclear, fmt.Sprintf("the runs do not show whether %s is worse than %s: %s", d.Subject, c.Reference, strings.Join(d.because(Unclear), "; ")))
		}
	}
	return worse, unclear
}

// overBudget has a sentence for each subject that fails its budget. The reference fails only an explicit one.
func (c *Comparison) overBudget() (failed []string) {
	for i, s := range c.Subjects {
		if s.Verdict != analysis.Fail || i == c.reference() && c.Budget == nil {
			continue
		}
		n := 0
		for _, r := range s.Runs {
			if r.Verdict == analysis.Fail {
				n++
			}
		}
		failed = append(failed, fmt.Sprintf("%s fails its budget in %d of %s", s.Subject, n, units.Plural(len(s.Runs), "run")))
	}
	return failed
}

// invalidRuns has a sentence for each subject with runs that say nothing.
func (c *Comparison) invalidRuns() (broken []string) {
	for _, s := range c.Subjects {
		n := 0
		for _, r := range s.Runs {
			if !r.valid() {
				n++
			}
		}
		if n > 0 {
			broken = append(broken, fmt.Sprintf("%d of %s of %s cannot be trusted (invalid or skipped)", n, units.Plural(len(s.Runs), "run"), s.Subject))
		}
	}
	return broken
}

// unpaired has a sentence for each subject whose seeds are not those of the reference, one run each.
func (c *Comparison) unpaired() (broken []string) {
	reference := c.Subjects[c.reference()]
	for _, s := range c.Subjects {
		seeds := s.seeds()
		switch {
		case len(slices.Compact(slices.Clone(seeds))) != len(seeds):
			broken = append(broken, s.Subject+" has two runs with one seed, so that they have no pair")
		case !slices.Equal(seeds, reference.seeds()):
			broken = append(broken, fmt.Sprintf("%s and %s have runs with different seeds", s.Subject, reference.Subject))
		}
	}
	return broken
}

func (s Subject) seeds() (seeds []int64) {
	for _, r := range s.Runs {
		seeds = append(seeds, r.Seed)
	}
	return seeds
}

// noneWorse is the reason of a pass.
func (c *Comparison) noneWorse() string {
	if len(c.Differences) == 1 {
		d := c.Differences[0]
		return fmt.Sprintf("%s is %s", d.Subject, map[Relation]string{Better: "better than ", Same: "the same as "}[d.Verdict]+c.Reference)
	}
	return "no subject is worse than " + c.Reference
}

// WriteJSON writes compare.json.
func WriteJSON(w io.Writer, c *Comparison) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(c); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

// Schema is the JSON Schema (2020-12) of compare.json.
//
//go:embed schema.json
var Schema []byte
