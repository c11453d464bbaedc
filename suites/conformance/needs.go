package conformance

import (
	"slices"
	"strings"

	"github.com/hitless/hitless/scenarios"
)

// needsLab labels specs whose runs are programs of a lab's node: no other site can make them.
const needsLab = "needs-lab"

// needLabel is the label of specs that need a capability of the site, such as needs-restartable-proxies.
func needLabel(c scenarios.Capability) string {
	name := strings.TrimPrefix(c.String(), "a ")
	return "needs-" + strings.ToLower(strings.ReplaceAll(name, " ", "-"))
}

// needsOf are the labels of what a site must offer for a run.
func needsOf(r *Run) (labels []string) {
	scenario, err := scenarios.Find(r.Scenario, scenarios.Capabilities())
	if err != nil {
		return []string{needsLab} // no scenario, as the checks of routing and the costs
	}
	needs, err := scenario.NeedsOf(r.Set)
	if err != nil {
		panic("run " + r.Name + " of the catalog: " + err.Error())
	}
	for _, c := range needs {
		labels = append(labels, needLabel(c))
	}
	return labels
}

// neededSomewhere are the labels of needs that a spec of the catalog has, sorted.
func neededSomewhere() (labels []string) {
	for _, s := range catalog() {
		labels = append(labels, s.Needs...)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
