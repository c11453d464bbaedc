package bugs

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/scenarios/timeline"
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
			all = append(all, Kill{e, mutants.Mutant{Name: e.Bad.Subject, Does: e.Title, Features: features[e.ID], Subject: e.Bad.Subject, Twin: e.Good.Subject, Runs: runsOf(e)}})
		}
	}
	return all
}

// generalRuns are the disruptions of every bug.
var generalRuns = []string{"rollout-cluster-ip", "restart-change", "flap", "scale-zero", "policy-external"}

// scenarioRuns are the other disruptions by the scenario of the bug's own entry.
var scenarioRuns = map[string][]string{
	"rollout":      {"rollout-local", "rollout-cluster", "rollout-node-port"},
	"restart":      {"restart-term", "restart-ready"},
	"upgrade":      {"upgrade-itself"},
	"drain":        {"drain", "drain-local", "drain-scaledown"},
	"policy":       {"policy-internal", "policy-type"},
	"interference": {"interference-flush"},
	"recreate":     {"recreate", "recreate-node-port"},
}

// verbRuns are the other disruptions by the verbs of the timeline of the bug's own entry.
var verbRuns = map[string][]string{
	"workload rollout": {"rollout-cluster"},
	"proxy kill":       {"restart-term"},
	"proxy flush":      {"interference-flush"},
	"node run":         {"interference-flush"},
	"object delete":    {"recreate-node-port"},
}

// changing are the disruptions that change the fields of a Service which a step patches.
func changing(s timeline.Step) (runs []string) {
	var patch struct{ Spec map[string]any }
	if s.Verb != "object patch" || json.Unmarshal([]byte(s.JSON), &patch) != nil {
		return nil
	}
	for _, spec := range conformance.Catalog() {
		r := spec.Run
		if _, changes := patch.Spec[r.Set["changes"]]; changes && spec.Family == conformance.IPv4 && !slices.Contains(runs, r.Name) {
			runs = append(runs, r.Name)
		}
	}
	return runs
}

// runsOf are the disruptions of a bug.
func runsOf(e museum.Entry) []string {
	runs := slices.Concat(generalRuns, scenarioRuns[e.Scenario])
	if e.Timeline == nil {
		return runs
	}
	for _, s := range e.Timeline.Steps {
		for _, r := range append(changing(s), verbRuns[s.Verb]...) {
			if !slices.Contains(runs, r) {
				runs = append(runs, r)
			}
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
