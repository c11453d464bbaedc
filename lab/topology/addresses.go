package topology

import (
	"fmt"
	"net/netip"

	"github.com/hitless/hitless/record"
)

// The lab's addresses of IPv4; AddressesOf has those of each family.
var (
	ControlAddr   = netip.MustParseAddr("10.0.0.2")
	balancerAddr  = netip.MustParseAddr("10.0.0.1")
	ServiceCIDR   = netip.MustParsePrefix("10.96.0.0/16")
	ClusterCIDR   = netip.MustParsePrefix("10.244.0.0/16")
	ExternalCIDR  = netip.MustParsePrefix("203.0.113.0/24")
	ClientAddr    = netip.MustParseAddr("198.51.100.2")
	clientGateway = netip.MustParseAddr("198.51.100.1")
	// ClientSources is the AnyIP range of the client: any of its addresses can be bound without configuration.
	ClientSources = netip.MustParsePrefix("10.200.0.0/16")
)

// The link between the client of a lab in a VM and the network namespace outside of the VM that is the client for others.
var (
	Outside        = netip.MustParsePrefix("198.18.0.2/30")
	OutsideGateway = netip.MustParsePrefix("198.18.0.1/30") // the client
)

// MaxNodes is the limit of the addressing plan.
const MaxNodes = 200

// Addresses are the lab's addresses of one family.
type Addresses struct {
	Family   record.Family
	Control  netip.Addr   // the API server
	Services netip.Prefix // cluster IPs
	Cluster  netip.Prefix // all pods
	External netip.Prefix // addresses of the load balancer
	// ClientSources is the range of the client's own addresses: any of them can be bound without configuration.
	ClientSources netip.Prefix
	// ClientPod is the address of the pod of AddClientPod. It is in Cluster and in no node's PodCIDR.
	ClientPod netip.Addr

	balancerAddr, client, clientGateway netip.Addr
	clientPods                          netip.Prefix
	bits                                int // of a link's prefix
	node                                func(number int) netip.Addr
	podCIDR                             func(number int) netip.Prefix
}

// ipv4 and ipv6 have the same last bytes where the ranges allow it.
var (
	ipv4 = Addresses{Family: record.IPv4, Control: ControlAddr, Services: ServiceCIDR, Cluster: ClusterCIDR, External: ExternalCIDR,
		ClientSources: ClientSources, ClientPod: netip.MustParseAddr("10.244.250.2"),
		balancerAddr: balancerAddr, client: ClientAddr, clientGateway: clientGateway, clientPods: netip.MustParsePrefix("10.244.250.0/30"), bits: 24,
		node:    func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + n)}) },
		podCIDR: func(n int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n), 0}), 24) }}
	ipv6 = Addresses{Family: record.IPv6, Control: netip.MustParseAddr("fd00:10::2"), Services: netip.MustParsePrefix("fd00:96::/112"),
		Cluster: netip.MustParsePrefix("fd00:244::/48"), External: netip.MustParsePrefix("2001:db8:203::/64"),
		ClientSources: netip.MustParsePrefix("2001:db8:200::/112"), ClientPod: netip.MustParseAddr("fd00:244:0:fa::2"),
		balancerAddr: netip.MustParseAddr("fd00:10::1"), client: netip.MustParseAddr("2001:db8:198::2"), clientGateway: netip.MustParseAddr("2001:db8:198::1"),
		clientPods: netip.MustParsePrefix("fd00:244:0:fa::/126"), bits: 64,
		node: func(n int) netip.Addr { return record.Nth(netip.MustParsePrefix("fd00:10::/64"), 10+n) },
		podCIDR: func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd00:244:0:%x::", n)), 64)
		}}
)

// AddressesOf returns the lab's addresses of a single family.
func AddressesOf(f record.Family) Addresses {
	if f == record.IPv6 {
		return ipv6
	}
	return ipv4
}

func plansOf(f record.Family) []Addresses { return each(f.Each(), AddressesOf) }

// each applies f to all values.
func each[T, U any](values []T, f func(T) U) []U {
	results := make([]U, len(values))
	for i, v := range values {
		results[i] = f(v)
	}
	return results
}

func addrsOf(prefixes []netip.Prefix) []netip.Addr { return each(prefixes, netip.Prefix.Addr) }

func (a Addresses) balancer() netip.Addr            { return a.balancerAddr }
func (a Addresses) gatewayOfClient() netip.Addr     { return a.clientGateway }
func (a Addresses) balancerLink() netip.Prefix      { return netip.PrefixFrom(a.balancerAddr, a.bits) }
func (a Addresses) controlLink() netip.Prefix       { return netip.PrefixFrom(a.Control, a.bits) }
func (a Addresses) clientLink() netip.Prefix        { return netip.PrefixFrom(a.client, a.bits) }
func (a Addresses) clientGatewayLink() netip.Prefix { return netip.PrefixFrom(a.clientGateway, a.bits) }

func (a Addresses) clientPodLink() netip.Prefix {
	return netip.PrefixFrom(a.ClientPod, a.clientPods.Bits())
}

func (a Addresses) clientPodGatewayLink() netip.Prefix {
	return netip.PrefixFrom(a.clientPods.Addr().Next(), a.clientPods.Bits())
}
