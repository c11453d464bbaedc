package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// NodePortSelector selects the node addresses that serve NodePorts. The zero value selects the primary addresses.
type NodePortSelector struct {
	prefixes []netip.Prefix
}

// ParseNodePortAddresses parses --nodeport-addresses: the word primary, or prefixes such as 192.168.0.0/16. An empty
// list means primary. Loopback prefixes are an error: the kernel forwards no packet from a loopback address to
// another node.
func ParseNodePortAddresses(words []string) (NodePortSelector, error) {
	var n NodePortSelector
	for _, word := range words {
		if word = strings.TrimSpace(word); word == "primary" && len(words) == 1 {
			return n, nil
		}
		p, err := netip.ParsePrefix(word)
		switch {
		case word == "primary":
			return n, errors.New("primary cannot be combined with prefixes")
		case err != nil:
			return n, fmt.Errorf("%q is neither the word primary nor a prefix such as 192.168.0.0/16", word)
		case p.Addr().IsLoopback():
			return n, fmt.Errorf("%v is a loopback prefix, where IPVS cannot serve NodePorts; use an address of the node, or the cluster IP", p)
		}
		n.prefixes = append(n.prefixes, p.Masked())
	}
	return n, nil
}

// Select returns the addresses to serve NodePorts on, sorted: those of has in one of the prefixes, or without
// prefixes the primary ones. It never returns an address outside has, nor a loopback or link-local one.
func (n NodePortSelector) Select(has, primary []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	for _, a := range has {
		wanted := slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		if len(n.prefixes) == 0 {
			wanted = slices.Contains(primary, a)
		}
		if wanted && specialPurpose(a) == "" {
			chosen = append(chosen, a)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}

// addNodePort adds the virtual servers of a port's NodePort. A stale nodePort on another type of Service is ignored.
func (c *computation) addNodePort(p *v1.ServicePort, endpoints byFamily, seen map[portKey]bool) {
	if c.svc.Spec.Type != v1.ServiceTypeNodePort && c.svc.Spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	if p.NodePort < 1 || p.NodePort > 65535 {
		c.refuse(BadPort, "NodePort %d is outside 1 to 65535", p.NodePort)
		return
	}
	protocol, _ := c.parseProtocol(p)
	key := portKey{protocol, uint16(p.NodePort)}
	if seen[key] {
		c.refuse(DuplicatePort, "%v NodePort %d is repeated as %q", protocol, p.NodePort, p.Name)
		return
	}
	seen[key] = true
	var served [2]bool
	for _, a := range c.options.NodePortAddrs {
		if f := familyOf(a); c.families[f] && (f == ipv4 || c.options.IPv6) {
			c.out.Virtuals = append(c.out.Virtuals, c.virtualServer(frontend{a, FromNodePort}, key, endpoints))
			served[f] = true
		}
	}
	if served == [2]bool{} {
		c.refuse(NoNodeAddress, "no node address for NodePorts is known; check --nodeport-addresses and the Node's InternalIP")
	}
}
