package bugs

import (
	"slices"

	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/suites/mutants"
)

// KillsFile is the table of the conformance specs that tell the two specimens of bugs apart, from the top of the tree.
const KillsFile = "docs/results/kills/museum.json"

// Kill is a bug as a mutant of the conformance suite: its specimens are the mutant and its twin.
type Kill struct {
	museum.Entry
	Mutant mutants.Mutant
}

// Kills returns those of the bugs whose specimens are two different subjects. The others differ in parameters of their own scenario only.
func Kills(of []museum.Entry) (all []Kill) {
	for _, e := range of {
		if e.Good.Subject != "" && e.Bad.Subject != e.Good.Subject {
			all = append(all, Kill{e, mutants.Mutant{Name: e.Bad.Subject, Does: e.Title, Subject: e.Bad.Subject, Twin: e.Good.Subject, Runs: runsOf(e.Scenario)}})
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
}

func runsOf(scenario string) []string { return slices.Concat(generalRuns, scenarioRuns[scenario]) }
