package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// NodePorts says on which addresses of the node NodePorts are served. The zero value means the primary ones.
type NodePorts struct {
	prefixes []netip.Prefix
}

// ParseNodePorts reads what --nodeport-addresses gets: the word primary, or prefixes as 192.168.0.0/16. Nothing means
// primary. Prefixes of loopback are refused: IPVS cannot serve them, as the kernel takes no packet from a loopback address
// to another node, nor its answer back.
func ParseNodePorts(words []string) (NodePorts, error) {
	var n NodePorts
	for _, word := range words {
		if word = strings.TrimSpace(word); word == "primary" && len(words) == 1 {
			return n, nil
		}
		p, err := netip.ParsePrefix(word)
		switch {
		case word == "primary":
			return n, errors.New("primary stands alone, without prefixes")
		case err != nil:
			return n, fmt.Errorf("%q is neither the word primary nor a prefix as 192.168.0.0/16", word)
		case p.Addr().IsLoopback():
			return n, fmt.Errorf("%v is loopback, where IPVS cannot serve NodePorts; use an address of the node, or the cluster IP", p)
		}
		n.prefixes = append(n.prefixes, p.Masked())
	}
	return n, nil
}

// Select returns the addresses to serve NodePorts on: of those that the node has, the ones in a prefix, or the primary
// ones. It never returns an address that the node does not have, nor a loopback or link-local one. The result is sorted.
func (n NodePorts) Select(has, primary []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	for _, a := range has {
		wanted := slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
		if len(n.prefixes) == 0 {
			wanted = slices.Contains(primary, a)
		}
		if wanted && special(a) == "" {
			chosen = append(chosen, a)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}

// nodePort adds the virtual servers of a port's NodePort. A Service of another type that has one has it from an earlier
// life, and does not get it.
func (c *computation) nodePort(p *v1.ServicePort, endpoints byFamily, seen map[portKey]bool) {
	if c.svc.Spec.Type != v1.ServiceTypeNodePort && c.svc.Spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	if p.NodePort < 1 || p.NodePort > 65535 {
		c.refuse(BadPort, "NodePort %d is outside 1 to 65535", p.NodePort)
		return
	}
	protocol, _ := c.protocol(p)
	key := portKey{protocol, uint16(p.NodePort)}
	if seen[key] {
		c.refuse(DuplicatePort, "%v NodePort %d again, as %q", protocol, p.NodePort, p.Name)
		return
	}
	seen[key] = true
	var served [2]bool
	for _, a := range c.options.NodePorts {
		if f := familyOf(a); c.has[f] && (f == ipv4 || c.options.IPv6) {
			c.out.Virtuals = append(c.out.Virtuals, c.virtual(frontend{a, FromNodePort}, key, endpoints))
			served[f] = true
		}
	}
	if served == [2]bool{} {
		c.refuse(NoNodeAddress, "the node has no address for NodePorts that is known: see --nodeport-addresses, and the Node's InternalIP")
	}
}
