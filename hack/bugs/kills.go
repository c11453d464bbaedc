package bugs

import (
	"fmt"
	"slices"
	"strings"

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

// Kills returns the bugs whose specimens are different subjects. The others differ in parameters of their own scenario only.
func Kills() (all []Kill) {
	for _, e := range museum.All() {
		if e.Bad.Subject != e.Good.Subject {
			all = append(all, Kill{e, mutants.Mutant{Name: e.Bad.Subject, Does: e.Title, Subject: e.Bad.Subject, Twin: e.Good.Subject, Runs: runsOf(e.Scenario)}})
		}
	}
	return all
}

// SelectKills returns the bugs of a list of ids, such as k8s-42473,k8s-92019. An empty list is all of them.
func SelectKills(ids string) ([]Kill, error) {
	all := Kills()
	if ids == "" {
		return all, nil
	}
	var some []Kill
	for id := range strings.SplitSeq(ids, ",") {
		i := slices.IndexFunc(all, func(k Kill) bool { return k.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no bug with two subjects is called %q; `hitless museum list` lists all bugs", id)
		}
		some = append(some, all[i])
	}
	return some, nil
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
