package desired

import (
	"slices"

	discovery "k8s.io/api/discovery/v1"
)

// hint is what an endpoint's hints say about this node, or about its zone.
type hint uint8

const (
	noHint hint = iota
	forUs
	forOthers
)

// hints reads whom an endpoint is meant for: the endpoint slice controller writes it for trafficDistribution and topology
// aware routing (KEP-2433, KEP-4444, KEP-3015).
func (c *computation) hints(h *discovery.EndpointHints) (node, zone hint) {
	if h == nil {
		return noHint, noHint
	}
	mine := func(n int, contains bool) hint {
		switch {
		case n == 0:
			return noHint
		case contains:
			return forUs
		}
		return forOthers
	}
	node = mine(len(h.ForNodes), slices.ContainsFunc(h.ForNodes, func(n discovery.ForNode) bool { return n.Name == c.options.Node }))
	zone = mine(len(h.ForZones), c.options.Zone != "" && slices.ContainsFunc(h.ForZones, func(z discovery.ForZone) bool { return z.Name == c.options.Zone }))
	return node, zone
}

// preferred says which of the ready endpoints are meant for this node: by their hints of nodes if all have one and one is
// for it, else by those of zones in the same way, else all of them. So a hint that is missing, as while endpoints come and
// go, shifts traffic and loses none.
func preferred(endpoints []endpoint) func(endpoint) bool {
	for _, level := range []func(endpoint) hint{
		func(e endpoint) hint { return e.forNode }, func(e endpoint) hint { return e.forZone },
	} {
		all, any := true, false
		for _, e := range endpoints {
			if e.ready {
				all = all && level(e) != noHint
				any = any || level(e) == forUs
			}
		}
		if all && any {
			return func(e endpoint) bool { return level(e) == forUs }
		}
	}
	return func(endpoint) bool { return true }
}
