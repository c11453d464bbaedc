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
	Twin    bool
}

func (m Mutant) twin() string { return cmp.Or(m.Twin, Unmutated) }

func (m Mutant) subject() Subject {
	s := Subject{Name: m.Name, Faults: m.Faults, Flags: m.Flags, Subject: m.Subject, Runs: slices.Concat(routingRuns, m.Runs)}
	if len(m.Faults)+len(m.Flags) == 0 && m.Subject == "" {
		s.Faults = []string{"*:" + m.Name}
	}
	return s
}

// Subjects are the rows of mutants: their twins first, each with the runs of all of its mutants, then the mutants.
func Subjects(of []Mutant) []Subject {
	var twins, all []Subject
	for _, m := range of {
		at := slices.IndexFunc(twins, func(s Subject) bool { return s.Name == m.twin() })
		if at < 0 {
			at = len(twins)
			t := Subject{Name: m.twin(), Subject: m.Twin, Runs: slices.Clone(routingRuns), Twin: true}
			twins = append(twins, t)
		}
		for _, r := range m.Runs {
			if !slices.Contains(twins[at].Runs, r) {
				twins[at].Runs = append(twins[at].Runs, r)
			}
		}
		all = append(all, m.subject())
	}
	return append(twins, all...)
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
