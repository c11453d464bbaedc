package desired

import (
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/proxier/kernel"
)

// family is an index: 0 for IPv4, 1 for IPv6.
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

// byFamily holds the endpoints of one Service port by family.
type byFamily [2][]endpoint

func (c *computation) clusterIPs() []string {
	if len(c.svc.Spec.ClusterIPs) == 0 {
		return []string{c.svc.Spec.ClusterIP}
	}
	return c.svc.Spec.ClusterIPs
}

// readFamilies sets the families of the Service's cluster IPs. Invalid cluster IPs count for none; frontends refuses
// them.
func (c *computation) readFamilies() {
	for _, text := range c.clusterIPs() {
		if a, err := netip.ParseAddr(text); err == nil {
			c.families[familyOf(a)] = true
		}
	}
}

type frontend struct {
	addr   netip.Addr
	origin Origin
}

// frontends returns the virtual addresses of the Service, without duplicates. Addresses of a family without a cluster
// IP are refused, since the Service has no endpoints in that family.
func (c *computation) frontends() []frontend {
	var all []frontend
	add := func(text string, origin Origin) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			c.refuse(BadAddress, "%q is not an address", text)
			return
		}
		if why := c.unusableReason(addr, origin); why != "" {
			c.refuse(BadAddress, "%v %s", addr, why)
			return
		}
		switch f := familyOf(addr); {
		case f == ipv6 && !c.options.IPv6:
			c.refuse(NoIPv6, "%v cannot be served: the node has no IPv6", addr)
			return
		case !c.families[f]:
			c.refuse(FamilyMismatched, "%v is of %v, but the Service has no cluster IP of that family", addr, f)
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
			// KEP-1860: in mode Proxy the load balancer sends to node addresses and must receive all traffic for its
			// own address.
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

// unusableReason returns why an address cannot be a virtual address; empty if it can.
func (c *computation) unusableReason(a netip.Addr, origin Origin) string {
	if r := c.options.Reserved[a]; r == ReservedAlways || r == ReservedExceptClusterIPs && origin != FromClusterIP {
		return "is an address of this node"
	}
	return specialPurpose(a)
}

// specialPurpose names the reserved range (IANA special-purpose registry) that an address is in; empty for usable
// addresses.
func specialPurpose(a netip.Addr) string {
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

// allowedClients parses loadBalancerSourceRanges for one load balancer address; nil allows all clients. Invalid
// ranges and ranges of the other family match no client. A range that contains a node address also allows the virtual
// address itself, which is the source address of the node's own packets to it.
func (c *computation) allowedClients(vip netip.Addr) *Clients {
	if len(c.svc.Spec.LoadBalancerSourceRanges) == 0 {
		return nil
	}
	clients := Clients{}
	for _, text := range c.svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Addr().Is4In6() {
			c.refuse(BadSource, "%q is not a valid source range", text)
			continue
		}
		if familyOf(p.Addr()) != familyOf(vip) {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		clients = append(clients, p.Masked())
		for a := range c.options.Reserved {
			if p.Contains(a) {
				clients = append(clients, netip.PrefixFrom(vip, vip.BitLen()))
			}
		}
	}
	clients = clients.normalized()
	return &clients
}

// normalized returns the prefixes sorted, without those that another one contains.
func (c Clients) normalized() Clients {
	out := Clients{}
	for _, p := range slices.SortedFunc(slices.Values(c), kernel.ComparePrefixes) {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
