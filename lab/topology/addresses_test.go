//go:build linux

package topology

import (
	"net/netip"
	"testing"

	"github.com/hitless/hitless/record"
)

// Each address of the lab is in one range, and nodes and pods have others in each family.
func TestAddressesOfEachFamily(t *testing.T) {
	for _, f := range record.DualStack.Each() {
		a := AddressesOf(f)
		ranges := []netip.Prefix{a.Services, a.Cluster, a.External, a.ClientSources, netip.PrefixFrom(a.Control, a.bits).Masked(), netip.PrefixFrom(a.client, a.bits).Masked()}
		for i, r := range ranges {
			if record.FamilyOf(r.Addr()) != f {
				t.Errorf("%s: %s", f, r)
			}
			for _, other := range ranges[:i] {
				if r.Overlaps(other) {
					t.Errorf("%s: %s overlaps %s", f, r, other)
				}
			}
		}
		seen := map[netip.Addr]bool{a.Control: true, a.balancerAddr: true}
		for n := 1; n <= MaxNodes; n++ {
			node, pods := a.node(n), a.podCIDR(n)
			if seen[node] || !ranges[4].Contains(node) || seen[pods.Addr()] || !a.Cluster.Contains(pods.Addr()) || pods.Overlaps(a.clientPods) {
				t.Fatalf("%s: node %d has %s and %s", f, n, node, pods)
			}
			seen[node], seen[pods.Addr()] = true, true
		}
		if !a.clientPods.Contains(a.ClientPod) || !a.Cluster.Contains(a.ClientPod) {
			t.Errorf("%s: the client pod has %s", f, a.ClientPod)
		}
	}
}

func TestNodesOfDualStackHaveBothFamilies(t *testing.T) {
	plans := plansOf(record.DualStack)
	n := &Node{Number: 3, plans: plans, Addr: plans[0].node(3), PodCIDR: plans[0].podCIDR(3)}
	if got := n.AddrOf(record.IPv6); got != plans[1].node(3) {
		t.Errorf("the IPv6 address is %s", got)
	}
	pod := netip.MustParseAddr("10.244.3.17")
	if all := n.PodAddrs(pod); len(all) != 2 || all[0] != pod || !n.PodCIDRs()[1].Contains(all[1]) || lastByte(all[1]) != 17 {
		t.Errorf("the pod has %v", all)
	}
	single := &Node{Number: 3, Addr: n.Addr, PodCIDR: n.PodCIDR}
	if single.AddrOf(record.IPv6).IsValid() || len(single.PodAddrs(pod)) != 1 {
		t.Errorf("a node of IPv4 has %v", single.Addrs())
	}
}
