package scenarios

import "slices"

// Needs are the capabilities of the sites that have the key; none for every site.
func (p Parameter) Needs() []Capability { return slices.Clone(p.needs) }

// LaneKey is a key that scenarios with the key lanes have as well.
type LaneKey struct {
	Parameter
	Without []string // names of scenarios that have lanes and not this key, each once, in the order of All
}

// LaneKeys lists the keys that come with lanes.
func LaneKeys() []LaneKey {
	var all []LaneKey
	for _, s := range All() {
		for _, p := range s.companions() {
			if !slices.ContainsFunc(all, func(k LaneKey) bool { return k.Key == p.Key }) {
				all = append(all, LaneKey{Parameter: p})
			}
		}
	}
	for i, k := range all {
		for _, s := range All() {
			if Lanes.among(s.Parameters) && !k.among(s.AllParameters()) && !slices.Contains(k.Without, s.Name) {
				k.Without = append(k.Without, s.Name)
			}
		}
		all[i] = k
	}
	return all
}

// among reports whether the key is in a list.
func (p Parameter) among(list []Parameter) bool {
	return slices.ContainsFunc(list, func(other Parameter) bool { return other.Key == p.Key })
}

// companions are the keys that come with the scenario's own keys.
func (s Scenario) companions() (all []Parameter) {
	for _, p := range s.Parameters {
		all = append(all, p.with...)
	}
	return all
}
