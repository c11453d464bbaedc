//go:build netns

package topology

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Frames to a node without power reach no other node. Without the entry in the bridge's table they reach all.
func TestFramesToANodeWithoutPowerReachNoOther(t *testing.T) {
	home, n := createdIn(t, Config{Nodes: 2})
	lost, other := n.Nodes[1], n.Nodes[0]
	mac := macAddress(lost.fabricLink(), lost.Name, 1)
	err := n.Balancer.Do(func() error { // else ARP would find that the node is gone
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: lost.Addr.AsSlice(), HardwareAddr: mac})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Do(func() error { return n.Cut(lost) }); err != nil {
		t.Fatal(err)
	}
	const sent = 50
	if seen := framesSeen(t, n, other, lost.Addr, sent, 0); seen > sent/10 { // a few are the kernel's own
		t.Errorf("%s saw %d frames while %d were sent to %s, which has no power", other.Name, seen, sent, lost.Name)
	}
	err = home.Do(func() error {
		port, err := netlink.LinkByName(lost.fabricLink())
		if err != nil {
			return err
		}
		return netlink.NeighDel(fdbEntry(port, mac))
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen := framesSeen(t, n, other, lost.Addr, sent, sent); seen < sent {
		t.Errorf("without the entry %s saw %d frames, want %d or more: the test shows nothing", other.Name, seen, sent)
	}
}

// framesSeen sends datagrams to an address from the load balancer, and returns how many frames the node received meanwhile. Datagrams to the node
// itself show when it has received what was sent before them. They are repeated until it has received as many frames as wanted.
func framesSeen(t *testing.T, n *Network, node *Node, to netip.Addr, datagrams, wanted int) (seen int) {
	t.Helper()
	received := func() (count uint64) {
		if err := node.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err == nil {
				count = link.Attrs().Statistics.RxPackets
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return count
	}
	dial := func(to netip.Addr) net.Conn {
		conn, err := n.Balancer.DialContext(t.Context(), "udp", net.JoinHostPort(to.String(), "9"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var at net.PacketConn
	if err := node.Do(func() (err error) {
		at, err = net.ListenPacket("udp4", net.JoinHostPort(node.Addr.String(), "9"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	own, conn := dial(node.Addr), dial(to)
	if !arrives(t, own, at, 20) {
		t.Fatalf("the load balancer does not reach %s", node.Name)
	}
	before := received()
	for range datagrams {
		if _, err := conn.Write([]byte("frame")); err != nil {
			t.Fatal(err)
		}
	}
	for tries := 1; tries <= 20; tries++ {
		if !arrives(t, own, at, 1) {
			t.Fatalf("the load balancer does not reach %s any more", node.Name)
		}
		if seen = int(received()-before) - tries; seen >= wanted {
			break
		}
	}
	return seen
}
