// Package mutants measures whether the specs of suites/conformance can fail: it runs them against proxies with one known defect each. A
// spec that no such proxy turns red proves nothing yet. The measured table is docs/results/kill-score.md.
package mutants

import (
	"cmp"
	"slices"

	"github.com/hitless/hitless/suites/conformance"
)

// Mutant is a proxy with one defect: the bundled proxier with a fault, or a proxy with a documented bug.
type Mutant struct {
	Name     string   // unique
	Does     string   // one sentence
	Features []string // labels of the specs that it should turn red, at least one of them
	Faults   []string // of the faulty proxier; the fault *:NAME where there are neither these, nor flags, nor a subject
	Flags    []string // more flags of the faulty proxier
	Subject  string   // a subject of hitless instead of the faulty proxier
	Twin     string   // the same without the defect; Unmutated where it is empty
	Runs     []string // names of disruptions, at most five; the checks of routing always run
}

// Unmutated is the twin of all faulty proxiers: the same program without a fault.
const Unmutated = "unmutated"

// routingRuns are the runs of every row.
var routingRuns = []string{"routing-ipv4", "routing-ipv6"}

// Subject is a row of the table: what runs, and in which runs.
type Subject struct {
	Name    string // of a mutant, of Unmutated, or of a subject of hitless that is a twin
	Faults  []string
	Flags   []string
	Subject string // a subject of hitless; empty for the faulty proxier
	Runs    []string
}

func (m Mutant) twin() string { return cmp.Or(m.Twin, Unmutated) }

func (m Mutant) subject() Subject {
	s := Subject{Name: m.Name, Faults: m.Faults, Flags: m.Flags, Subject: m.Subject, Runs: slices.Concat(routingRuns, m.Runs)}
	if len(m.Faults)+len(m.Flags) == 0 && m.Subject == "" {
		s.Faults = []string{"*:" + m.Name}
	}
	return s
}

// rows are the rows of mutants that are measured whatever the others show: the proxier without a fault, with the runs of all of its
// mutants, then the mutants.
func rows(of []Mutant) (all []Subject) {
	for _, m := range of {
		if m.Twin == "" {
			all = add(all, Subject{Name: Unmutated, Runs: m.subject().Runs})
		}
	}
	for _, m := range of {
		all = add(all, m.subject())
	}
	return all
}

// twins are the other rows: subjects of hitless without the defects, each with the runs in which one of its mutants failed a spec. In other
// runs a twin proves nothing.
func (t *Table) twins(of []Mutant) (all []Subject) {
	for _, m := range of {
		s := Subject{Name: m.Twin, Subject: m.Twin}
		for _, run := range m.subject().Runs {
			if c, _ := t.Cell(m.Name, run); len(c.Failed) > 0 {
				s.Runs = append(s.Runs, run)
			}
		}
		if m.Twin != "" && len(s.Runs) > 0 {
			all = add(all, s)
		}
	}
	return all
}

// add adds a row, or its runs to the row of that name.
func add(all []Subject, s Subject) []Subject {
	at := slices.IndexFunc(all, func(of Subject) bool { return of.Name == s.Name })
	if at < 0 {
		return append(all, s)
	}
	for _, run := range s.Runs {
		if !slices.Contains(all[at].Runs, run) {
			all[at].Runs = append(all[at].Runs, run)
		}
	}
	return all
}

// specsOf are the specs of runs.
func specsOf(runs []string) (all []conformance.Spec) {
	for _, s := range conformance.Catalog() {
		if slices.Contains(runs, s.Run.Name) {
			all = append(all, s)
		}
	}
	return all
}
