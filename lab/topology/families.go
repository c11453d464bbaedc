//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/hitless/hitless/record"
)

// Planned returns a network that exists only in its plan: its nodes have names and addresses, and their namespaces cannot be entered.
func Planned(nodes int, family record.Family) *Network {
	n := &Network{plans: plansOf(family)}
	for i := range nodes {
		n.Nodes = append(n.Nodes, n.planned(i+1))
	}
	return n
}

// planned is a node before its namespace exists.
func (n *Network) planned(number int) *Node {
	return &Node{Namespace: &Namespace{Name: fmt.Sprintf("node-%d", number)}, Number: number, plans: n.plans, pacer: n.pacer,
		Addr: n.plans[0].node(number), PodCIDR: n.plans[0].podCIDR(number)}
}

// Plans are the addresses of the network's families, the primary one first.
func (n *Network) Plans() []Addresses {
	if len(n.plans) == 0 {
		return []Addresses{ipv4}
	}
	return n.plans
}

// Addrs are the node's addresses of each family, the primary one first.
func (n *Node) Addrs() []netip.Addr {
	if len(n.plans) < 2 {
		return []netip.Addr{n.Addr}
	}
	return each(n.plans, func(a Addresses) netip.Addr { return a.node(n.Number) })
}

// AddrOf is the node's address of a single family; not valid where it has none.
func (n *Node) AddrOf(f record.Family) netip.Addr {
	for _, a := range n.Addrs() {
		if record.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// PodCIDRs are the ranges of the node's pods of each family, the primary one first.
func (n *Node) PodCIDRs() []netip.Prefix {
	if len(n.plans) < 2 {
		return []netip.Prefix{n.PodCIDR}
	}
	return each(n.plans, func(a Addresses) netip.Prefix { return a.podCIDR(n.Number) })
}

// PodAddrs are the addresses of a pod with this address of the primary family: the last bytes are the same.
func (n *Node) PodAddrs(primary netip.Addr) []netip.Addr {
	all := []netip.Addr{primary}
	for _, other := range n.PodCIDRs()[1:] {
		all = append(all, record.Nth(other, lastByte(primary)))
	}
	return all
}

// links are the node's addresses on the fabric.
func (n *Node) links() []netip.Prefix {
	return each(n.plans, func(a Addresses) netip.Prefix { return netip.PrefixFrom(a.node(n.Number), a.bits) })
}

// podGateways are the node's addresses on the bridge of its pods.
func (n *Node) podGateways() []netip.Prefix {
	return each(n.PodCIDRs(), func(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr().Next(), p.Bits()) })
}

// podLinks are the addresses of a pod on its link.
func (n *Node) podLinks(primary netip.Addr) (all []netip.Prefix) {
	for i, addr := range n.PodAddrs(primary) {
		all = append(all, netip.PrefixFrom(addr, n.PodCIDRs()[i].Bits()))
	}
	return all
}

// routeToPods adds the routes to the node's pods in the calling thread's namespace.
func (n *Node) routeToPods() (err error) {
	for i, cidr := range n.PodCIDRs() {
		err = errors.Join(err, addRoute(cidr, n.Addrs()[i]))
	}
	return err
}

// podLink is the name of the node's end of a pod's veth pair.
func podLink(addr netip.Addr) string { return fmt.Sprintf("pod%d", lastByte(addr)) }

func lastByte(addr netip.Addr) int { return int(addr.As16()[15]) }

// newNamespace creates a namespace that is ready for links of the families.
func newNamespace(name string, plans []Addresses) (*Namespace, error) {
	ns, err := NewNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := ns.Do(func() error { return prepareIPv6(plans) }); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing %s: %w", name, err), ns.Close())
	}
	return ns, nil
}

// ipv6Sysctls make addresses usable at once, turn autoconfiguration off, and let a client bind its sources: the kernel takes only
// the addresses of links for its own. Links that come later inherit them.
var ipv6Sysctls = []string{"net/ipv6/conf/all/disable_ipv6=0", "net/ipv6/conf/default/disable_ipv6=0",
	"net/ipv6/conf/all/accept_dad=0", "net/ipv6/conf/default/accept_dad=0", "net/ipv6/conf/default/dad_transmits=0",
	"net/ipv6/conf/all/accept_ra=0", "net/ipv6/conf/default/accept_ra=0", "net/ipv6/conf/default/router_solicitations=0",
	"net/ipv6/icmp/ratelimit=0", "net/ipv6/ip_nonlocal_bind=1"}

func hasIPv6(plans []Addresses) bool {
	return slices.ContainsFunc(plans, func(a Addresses) bool { return a.Family == record.IPv6 })
}

// prepareIPv6 prepares the calling thread's namespace where the lab has IPv6.
func prepareIPv6(plans []Addresses) error {
	if !hasIPv6(plans) {
		return nil
	}
	return sysctls(ipv6Sysctls...)
}

// routeIPv6 prepares the calling thread's namespace as that of a router where it has an address of IPv6.
func routeIPv6(addrs []netip.Prefix) error {
	if !slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return nil
	}
	return errors.Join(sysctls(ipv6Sysctls...), sysctls("net/ipv6/conf/all/forwarding=1", "net/ipv6/conf/default/forwarding=1"))
}

// PodLink is the link of a pod with an address of the node's. The pod's end is eth0.
type PodLink struct {
	Host      string           // the node's end
	HostMAC   net.HardwareAddr // of the node's end
	MAC       net.HardwareAddr // of the pod's end
	Addresses []netip.Prefix   // of the pod, of each family, the primary one first
	Gateways  []netip.Addr     // likewise
}

// PodLink describes the link that AddPod makes.
func (n *Node) PodLink(pod string, addr netip.Addr) PodLink {
	name := podLink(addr)
	return PodLink{name, macAddress(name, pod, 0), macAddress(name, pod, 1), n.podLinks(addr), addrsOf(n.podGateways())}
}
