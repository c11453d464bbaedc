package desired

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/hitless/hitless/proxier/kernel"
)

// clients reads loadBalancerSourceRanges for one address of the balancer; nil when everybody may come. Ranges of the other
// family let nobody of this one in, and neither does one that cannot be read. Where a range has an address of the node,
// what the node itself sends may come too: it has the virtual address as its source, which is the node's own.
func (c *computation) clients(vip netip.Addr) *Clients {
	if len(c.svc.Spec.LoadBalancerSourceRanges) == 0 {
		return nil
	}
	clients := Clients{}
	for _, text := range c.svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Addr().Is4In6() {
			c.refuse(BadSource, "%q is not a range of addresses", text)
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
	clients = clients.apart()
	return &clients
}

// apart returns the same clients, sorted, without ranges that others contain.
func (c Clients) apart() Clients {
	out := Clients{}
	for _, p := range slices.SortedFunc(slices.Values(c), kernel.ComparePrefixes) {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
