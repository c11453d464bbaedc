package desired

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

// endpoint is one address and port of a Service port.
type endpoint struct {
	addr                               netip.AddrPort
	local, ready, serving, terminating bool
	nodeHint, zoneHint                 hint
}

// better reports whether e has priority over o. One address may be listed twice: while it moves between slices, or
// when a new pod gets the address of a terminating one (kubernetes#135266).
func (e endpoint) better(o endpoint) bool { return e.rank() < o.rank() }

func (e endpoint) rank() int {
	switch {
	case e.ready && !e.terminating:
		return 0
	case e.ready:
		return 1
	case e.serving && e.terminating:
		return 2
	case e.serving:
		return 3
	case !e.terminating:
		return 4
	}
	return 5
}

// addressTypes maps a family to its type of EndpointSlice.
var addressTypes = [2]discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6}

// endpoints returns the endpoints of one Service port, by family.
func (c *computation) endpoints(p *v1.ServicePort) (all byFamily) {
	for f, kind := range addressTypes {
		if c.families[f] && (family(f) == ipv4 || c.options.IPv6) {
			all[f] = c.familyEndpoints(p, family(f), kind)
		}
	}
	return all
}

// familyEndpoints returns the endpoints of one family, one for each address and port, sorted.
func (c *computation) familyEndpoints(p *v1.ServicePort, f family, kind discovery.AddressType) []endpoint {
	best := map[netip.AddrPort]endpoint{}
	for _, slice := range c.slices {
		if slice.AddressType != kind {
			continue
		}
		for _, port := range c.targetPorts(slice, p) {
			for i := range slice.Endpoints {
				e, ok := c.parseEndpoint(&slice.Endpoints[i], f, port)
				if !ok {
					continue
				}
				if old, listed := best[e.addr]; !listed || e.better(old) {
					best[e.addr] = e
				}
			}
		}
	}
	all := make([]endpoint, 0, len(best))
	for _, e := range best {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return all
}

// targetPorts returns the target ports of a slice with the name and protocol of a Service port.
func (c *computation) targetPorts(slice *discovery.EndpointSlice, p *v1.ServicePort) []uint16 {
	want := cmp.Or(p.Protocol, v1.ProtocolTCP)
	var ports []uint16
	for _, t := range slice.Ports {
		name, protocol := "", v1.ProtocolTCP
		if t.Name != nil {
			name = *t.Name
		}
		if t.Protocol != nil {
			protocol = *t.Protocol
		}
		if name != p.Name || protocol != want {
			continue
		}
		if t.Port == nil || *t.Port < 1 || *t.Port > 65535 {
			c.refuse(BadEndpoint, "slice %s has no usable port for %q", slice.Name, p.Name)
			continue
		}
		ports = append(ports, uint16(*t.Port))
	}
	return ports
}

// parseEndpoint reads one endpoint. Unset conditions have the API's defaults: ready is true, serving equals ready,
// terminating is false.
func (c *computation) parseEndpoint(e *discovery.Endpoint, f family, port uint16) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		c.refuse(BadEndpoint, "an endpoint has no address")
		return endpoint{}, false
	}
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		c.refuse(BadEndpoint, "%q is not an address", e.Addresses[0])
		return endpoint{}, false
	}
	if familyOf(addr) != f {
		c.refuse(FamilyMismatched, "endpoint %v in a slice of %v", addr, f)
		return endpoint{}, false
	}
	if why := specialPurpose(addr); why != "" {
		c.refuse(BadEndpoint, "endpoint %v %s", addr, why)
		return endpoint{}, false
	}
	out := endpoint{addr: netip.AddrPortFrom(addr, port)}
	out.local = e.NodeName != nil && *e.NodeName == c.options.Node
	out.ready = e.Conditions.Ready == nil || *e.Conditions.Ready
	out.serving = out.ready
	if e.Conditions.Serving != nil {
		out.serving = *e.Conditions.Serving
	}
	out.nodeHint, out.zoneHint = c.topologyHints(e.Hints)
	out.terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	return out, true
}

// choose selects the endpoints that take new connections, from this node (local) or the whole cluster, and counts
// them: the ready ones, or else those that terminate but still serve (KEP-1669). Topology hints apply to ready
// endpoints of the whole cluster only.
func choose(endpoints []endpoint, local, fallback bool) (chosen []bool, n int) {
	preferredHere := func(endpoint) bool { return true }
	if !local {
		preferredHere = preferred(endpoints)
	}
	ready := func(e endpoint) bool { return e.ready && preferredHere(e) }
	terminating := func(e endpoint) bool { return !e.ready && e.serving && e.terminating }
	if chosen, n = pick(endpoints, local, ready); n > 0 || !fallback {
		return chosen, n
	}
	return pick(endpoints, local, terminating)
}

func pick(endpoints []endpoint, local bool, usable func(endpoint) bool) (chosen []bool, n int) {
	chosen = make([]bool, len(endpoints))
	for i, e := range endpoints {
		if (e.local || !local) && usable(e) {
			chosen[i] = true
			n++
		}
	}
	return chosen, n
}

// hint states whether an endpoint's topology hints include this node, or its zone.
type hint uint8

const (
	noHint hint = iota
	hintedHere
	hintedElsewhere
)

// topologyHints evaluates the hints that the EndpointSlice controller sets for trafficDistribution and topology-aware
// routing (KEP-2433, KEP-4444, KEP-3015).
func (c *computation) topologyHints(h *discovery.EndpointHints) (node, zone hint) {
	if h == nil {
		return noHint, noHint
	}
	classify := func(n int, contains bool) hint {
		switch {
		case n == 0:
			return noHint
		case contains:
			return hintedHere
		}
		return hintedElsewhere
	}
	node = classify(len(h.ForNodes), slices.ContainsFunc(h.ForNodes, func(n discovery.ForNode) bool { return n.Name == c.options.Node }))
	zone = classify(len(h.ForZones), c.options.Zone != "" && slices.ContainsFunc(h.ForZones, func(z discovery.ForZone) bool { return z.Name == c.options.Zone }))
	return node, zone
}

// preferred returns a predicate for ready endpoints: those with a node hint for this node if all ready ones have node
// hints and one matches; else the same by zone; else all. A missing hint therefore shifts traffic but drops none.
func preferred(endpoints []endpoint) func(endpoint) bool {
	for _, level := range []func(endpoint) hint{
		func(e endpoint) hint { return e.nodeHint }, func(e endpoint) hint { return e.zoneHint },
	} {
		all, any := true, false
		for _, e := range endpoints {
			if e.ready {
				all = all && level(e) != noHint
				any = any || level(e) == hintedHere
			}
		}
		if all && any {
			return func(e endpoint) bool { return level(e) == hintedHere }
		}
	}
	return func(endpoint) bool { return true }
}
