package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/scenarios/timeline"
)

// All lists the scenarios in the order of their names. A scenario that sites run in different ways has several entries of
// one name, with different needs.
func All() []Scenario {
	return []Scenario{api(), churn(), drain(), drainLive(), fault(), flap(), interference(), migrate(), policy(), quiet(), recreate(),
		restart(), restartLive(), rollout(), scale(), soak(), upgrade(), upgradeLive()}
}

// Names lists the names of the scenarios that a site with these capabilities can run, each once, sorted.
func Names(offers Offers) (names []string) {
	for _, s := range All() {
		if len(s.Lacks(offers)) == 0 && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Find returns the entry of that name that a site with these capabilities can run with its default parameters. The error
// names what the site lacks, or the known scenarios.
func Find(name string, offers Offers) (Scenario, error) {
	var known []string
	var first error
	for _, s := range All() {
		if s.Name != name {
			known = append(known, s.Name)
			continue
		}
		lacking := s.Lacks(offers)
		if len(lacking) == 0 {
			return s, nil
		}
		if first == nil {
			first = &lackError{subject: "scenario " + name, lacking: lacking, others: Names(offers)}
		}
	}
	if first != nil {
		return Scenario{}, first
	}
	return Scenario{}, fmt.Errorf("unknown scenario %q; the scenarios are %s", name, strings.Join(slices.Compact(known), ", "))
}

// Select decides whether a site with these capabilities can run a scenario with these parameters. It returns the entry for
// the site and the complete parameters, or an error that names what the site lacks and what to do.
func Select(name string, offers Offers, given map[string]string) (Scenario, Params, error) {
	s, err := Find(name, offers)
	if err != nil {
		return s, nil, err
	}
	p, err := s.Select(offers, given)
	return s, p, err
}

// Select is the decision for a scenario that is known, such as the replay of a timeline.
func (s Scenario) Select(offers Offers, given map[string]string) (Params, error) {
	for _, p := range s.AllParameters() {
		if value, is := given[p.Key]; is {
			if lacking := offers.missing(p.needs); len(lacking) > 0 {
				return nil, &lackError{subject: "--set " + p.Key + "=" + value, lacking: lacking}
			}
		}
	}
	p, err := s.Fill(given)
	if err != nil {
		return nil, err
	}
	return p, s.Check(offers, p)
}

// Check returns an error that names the capabilities that a run with these parameters needs and the site does not offer.
func (s Scenario) Check(offers Offers, p Params) error {
	if lacking := offers.missing(s.Needs(p)); len(lacking) > 0 {
		return &lackError{subject: "scenario " + s.Name + " with these parameters", lacking: lacking}
	}
	return nil
}

// Needs are the capabilities that the scenario needs with these parameters: those of its steps and of its lanes.
func (s Scenario) Needs(p Params) (needs []Capability) {
	for _, step := range s.steps(p) {
		needs = append(needs, needsOf(step)...)
	}
	if p.Datagrams() {
		needs = append(needs, DatagramBackends)
	}
	return needs
}

// NeedsOf are the capabilities that the scenario needs with given values: those of the keys, of its steps and of its lanes, each once.
func (s Scenario) NeedsOf(given map[string]string) ([]Capability, error) {
	p, err := s.Fill(given)
	if err != nil {
		return nil, err
	}
	needs := s.Needs(p)
	for _, parameter := range s.AllParameters() {
		if _, is := given[parameter.Key]; is {
			needs = append(needs, parameter.needs...)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs), nil
}

// Lacks are the capabilities that the scenario needs with its default parameters and that are not offered.
func (s Scenario) Lacks(offers Offers) []Capability { return offers.missing(s.Needs(s.Defaults())) }

// Access are the verbs that the scenario needs on a live cluster besides those of every run.
func (s Scenario) Access(p Params) (all []Access) {
	for _, step := range s.steps(p) {
		for _, a := range stepAccess[step] {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// written reports whether a timeline has verbs for all steps, so that the run can write one.
func (s Scenario) written(p Params) bool {
	return !slices.ContainsFunc(s.steps(p), func(step string) bool { return !slices.Contains(timeline.Verbs(), step) })
}

// Blocks reports whether a step of the scenario blocks a proxy, which is not possible with each subject.
func (s Scenario) Blocks(p Params) bool { return slices.Contains(s.steps(p), timeline.Block) }

func (s Scenario) steps(p Params) []string {
	if s.Steps == nil {
		return nil
	}
	return s.Steps(p)
}

// Recorded are the parameters that mean something on a site with these capabilities.
func (s Scenario) Recorded(offers Offers, p Params) map[string]string {
	all := map[string]string{}
	for key, value := range p {
		all[key] = value
	}
	for _, parameter := range s.AllParameters() {
		if len(offers.missing(parameter.needs)) > 0 {
			delete(all, parameter.Key)
		}
	}
	return all
}
