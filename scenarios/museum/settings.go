package museum

import (
	"maps"
	"slices"

	"github.com/hitless/hitless/scenarios"
)

// Free lists the parameters that a call may set for each entry that does not set them itself: no value of them hides or fakes a bug, but
// for terminatingFallback, which is a setting of the bundled proxier. An entry has more of them in the field Free.
func Free() []string {
	return []string{"baseline", "settle", "recoverWithin", "shortestFault", scenarios.TerminatingFallback.Key}
}

// Needs are the parameters with the values that the bug needs: those of the entry, and the defaults of all others of its scenario that
// are not free and that no specimen sets.
func (e Entry) Needs() map[string]string {
	fixed := map[string]string{}
	for _, p := range e.parameters() {
		_, bad := e.Bad.Set[p.Key]
		_, good := e.Good.Set[p.Key]
		if p.Default != "" && !bad && !good && !slices.Contains(e.Free, p.Key) && !slices.Contains(Free(), p.Key) {
			fixed[p.Key] = p.Default
		}
	}
	maps.Copy(fixed, e.Set)
	return fixed
}

// parameters are those of the entry's scenario in the lab.
func (e Entry) parameters() []scenarios.Parameter {
	if e.Timeline != nil {
		return scenarios.Replay(e.Timeline).AllParameters()
	}
	all := scenarios.All() // a scenario of the lab stands before the one of live clusters with its name
	i := slices.IndexFunc(all, func(s scenarios.Scenario) bool { return s.Name == e.Scenario })
	return all[i].AllParameters()
}
