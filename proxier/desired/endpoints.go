package desired

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

// endpoint is one address and port behind a Service port.
type endpoint struct {
	addr                               netip.AddrPort
	local, ready, serving, terminating bool
	forNode, forZone                   hint
}

// better reports whether e says more in favour of its address than o. One address may be listed twice, while it moves
// between slices or when a new pod got the address of one that is still terminating (kubernetes#135266).
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

// addressTypes are the types of slices by family.
var addressTypes = [2]discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6}

// endpoints returns the endpoints of one Service port, by family.
func (c *computation) endpoints(p *v1.ServicePort) (all byFamily) {
	for f, kind := range addressTypes {
		if c.has[f] && (family(f) == ipv4 || c.options.IPv6) {
			all[f] = c.endpointsOf(p, family(f), kind)
		}
	}
	return all
}

// endpointsOf returns the endpoints of one family, one for each address and port, sorted.
func (c *computation) endpointsOf(p *v1.ServicePort, f family, kind discovery.AddressType) []endpoint {
	best := map[netip.AddrPort]endpoint{}
	for _, slice := range c.slices {
		if slice.AddressType != kind {
			continue
		}
		for _, port := range c.targets(slice, p) {
			for i := range slice.Endpoints {
				e, ok := c.endpoint(&slice.Endpoints[i], f, port)
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

// targets returns the target ports that a slice has for a port of the Service: those of the same name and protocol.
func (c *computation) targets(slice *discovery.EndpointSlice, p *v1.ServicePort) []uint16 {
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

// endpoint reads one endpoint. The conditions that are not set mean what the API says: ready is true, serving is as
// ready, terminating is false.
func (c *computation) endpoint(e *discovery.Endpoint, f family, port uint16) (endpoint, bool) {
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
	if why := special(addr); why != "" {
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
	out.forNode, out.forZone = c.hints(e.Hints)
	out.terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	return out, true
}

// choose returns which endpoints take new connections, out of those of the node (local) or of the cluster, and how many:
// the ready ones if there are any, else those that terminate but still serve (KEP-1669), else none. One that terminates
// and does not serve is never chosen. Hints count where the whole cluster would do, and not for those that terminate.
func choose(endpoints []endpoint, local, fallback bool) (chosen []bool, n int) {
	near := func(endpoint) bool { return true }
	if !local {
		near = preferred(endpoints)
	}
	ready := func(e endpoint) bool { return e.ready && near(e) }
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
