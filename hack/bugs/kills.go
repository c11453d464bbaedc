package bugs

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/conformance"
	"github.com/hitless/hitless/suites/mutants"
)

// KillsFile is the table of the conformance specs that tell the two specimens of bugs apart, from the top of the tree.
const KillsFile = "docs/results/kills/museum.json"

// Kill is a bug as a mutant of the conformance suite: its specimens are the mutant and its twin.
type Kill struct {
	museum.Entry
	Mutant mutants.Mutant
}

// Kills returns those of the bugs whose specimens are two different subjects. The specimens of others differ in parameters of their own scenario
// only: a spec cannot tell them apart.
func Kills(of []museum.Entry) (all []Kill) {
	for _, e := range of {
		if e.Bad.Subject != e.Good.Subject {
			of := features[e.ID]
			all = append(all, Kill{e, mutants.Mutant{Name: e.Bad.Subject, Does: e.Title, Features: of, Subject: e.Bad.Subject, Twin: e.Good.Subject, Runs: runsOf(of)}})
		}
	}
	return all
}

// runsOf are the disruptions over IPv4 with a spec that is about one of the features. All checks of routing run anyway.
func runsOf(features []string) (runs []string) {
	of := mutants.Mutant{Features: features}
	for _, s := range conformance.Catalog() {
		if s.Kind != conformance.Routing && s.Family == conformance.IPv4 && of.Breaks(s) && !slices.Contains(runs, s.Run.Name) {
			runs = append(runs, s.Run.Name)
		}
	}
	return runs
}

// Finds are the specs of the bug's features that fail with it and pass without it, in the order of the catalog.
func (k Kill) Finds(t *mutants.Table) []conformance.Spec {
	return slices.DeleteFunc(t.Kills(k.Mutant), func(s conformance.Spec) bool { return !k.Mutant.Breaks(s) })
}

// NamesBug reports whether the source of a spec names the bug's own issue or fix, so that the spec may have been written for it.
func NamesBug(s conformance.Spec, e museum.Entry) bool {
	words := strings.FieldsFunc(s.Source, func(r rune) bool { return !unicode.IsDigit(r) && !unicode.IsLetter(r) && r != '#' && r != '-' })
	for _, address := range []string{e.Issue, e.Fix} {
		number := path.Base(address)
		if slices.Contains(words, "kubernetes#"+number) || slices.Contains(words, "#"+number) || strings.Contains(address, "/enhancements/") && slices.Contains(words, "KEP-"+number) {
			return true
		}
	}
	return false
}
