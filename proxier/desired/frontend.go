package desired

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// family is the index of a family: 0 for IPv4, 1 for IPv6.
type family int

const (
	ipv4 family = iota
	ipv6
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string { return []string{"IPv4", "IPv6"}[f] }

// byFamily are the endpoints of a port of the Service.
type byFamily [2][]endpoint

func (c *computation) clusterIPs() []string {
	if len(c.svc.Spec.ClusterIPs) == 0 {
		return []string{c.svc.Spec.ClusterIP}
	}
	return c.svc.Spec.ClusterIPs
}

// families finds out which families the Service has. One that cannot be read has none, and is refused where it is used.
func (c *computation) families() {
	for _, text := range c.clusterIPs() {
		if a, err := netip.ParseAddr(text); err == nil {
			c.has[familyOf(a)] = true
		}
	}
}

type frontend struct {
	addr   netip.Addr
	origin Origin
}

// frontends returns the virtual addresses of the Service, each once. Those of a family in which the Service has no cluster
// IP are refused: it has no endpoints there.
func (c *computation) frontends() []frontend {
	var all []frontend
	add := func(text string, origin Origin) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			c.refuse(BadAddress, "%q is not an address", text)
			return
		}
		if why := c.unusable(addr, origin); why != "" {
			c.refuse(BadAddress, "%v %s", addr, why)
			return
		}
		switch f := familyOf(addr); {
		case f == ipv6 && !c.options.IPv6:
			c.refuse(NoIPv6, "%v on a node without IPv6", addr)
			return
		case !c.has[f]:
			c.refuse(FamilyMismatched, "%v, but no cluster IP of the Service is of %v", addr, f)
			return
		}
		if !slices.ContainsFunc(all, func(f frontend) bool { return f.addr == addr }) {
			all = append(all, frontend{addr, origin})
		}
	}
	for _, ip := range c.clusterIPs() {
		add(ip, FromClusterIP)
	}
	if c.svc.Spec.Type == v1.ServiceTypeLoadBalancer {
		for _, in := range c.svc.Status.LoadBalancer.Ingress {
			// KEP-1860: with mode Proxy the balancer delivers to the node, and wants to see all traffic itself.
			if in.IP != "" && (in.IPMode == nil || *in.IPMode == v1.LoadBalancerIPModeVIP) {
				add(in.IP, FromLoadBalancer)
			}
		}
	}
	for _, ip := range c.svc.Spec.ExternalIPs {
		add(ip, FromExternalIP)
	}
	return all
}

// unusable says why an address cannot be a virtual address; empty when it can.
func (c *computation) unusable(a netip.Addr, origin Origin) string {
	if r := c.options.Reserved[a]; r == Always || r == ButClusterIPs && origin != FromClusterIP {
		return "is an address of this node"
	}
	return special(a)
}

// special says what kind of address no Service and no endpoint may have (IANA special-purpose registry); empty for
// ordinary ones.
func special(a netip.Addr) string {
	switch {
	case a.Is4In6():
		return "is an IPv4 address written as IPv6"
	case a.Zone() != "":
		return "has a zone"
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "means this host"
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsLinkLocalUnicast():
		return "is a link-local address"
	case a.IsMulticast():
		return "is a multicast address"
	case a.Is4() && a.As4()[0] >= 240:
		return "is a reserved or broadcast address"
	}
	return ""
}
