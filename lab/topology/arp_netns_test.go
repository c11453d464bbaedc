//go:build netns

package topology

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// Each node that has an address answers for it, unless its kernel is told to answer only for addresses of the interface.
func TestAnswersARP(t *testing.T) {
	n, err := New(3)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	vip := netip.MustParseAddr("203.0.113.10")
	for _, node := range n.Nodes[:2] {
		if err := node.Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			address, err := netlink.ParseAddr(vip.String() + "/32")
			if err != nil {
				return err
			}
			return netlink.AddrAdd(lo, address)
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, addr netip.Addr, want ...string) {
		t.Helper()
		if got, err := n.AnswersARP(t.Context(), addr); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v answer for %s, %v; want %v", what, got, addr, err, want)
		}
	}
	expect("a node's own address", n.Nodes[2].Addr, n.Nodes[2].Name)
	expect("an address of two nodes", vip, n.Nodes[0].Name, n.Nodes[1].Name)
	if err := n.Nodes[1].Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	expect("one of them is strict", vip, n.Nodes[0].Name)
	expect("an address of no node", netip.MustParseAddr("203.0.113.99"))
}
