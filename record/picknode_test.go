package record

import (
	"fmt"
	"net/netip"
	"testing"
)

// The choices that the kernel made for these tuples, read back from a rule; balance_netns_test.go asks it for hundreds.
func TestPickNodeRemembersTheKernel(t *testing.T) {
	for _, c := range []struct {
		source, target string
		seed           uint32
		nodes, want    int
	}{
		{"127.200.3.4:2000", "127.113.0.10:80", 7, 2, 0},
		{"127.201.255.1:65535", "127.113.0.10:443", 7, 2, 1},
		{"127.200.3.4:2000", "127.113.0.10:80", 1, 3, 0},
		{"127.201.255.1:65535", "127.113.0.10:443", 1, 3, 2},
		{"127.200.3.4:2000", "127.113.0.10:80", 4294967295, 3, 1},
		{"127.201.255.1:65535", "127.113.0.10:443", 4294967295, 3, 0},
		{"127.200.3.4:2000", "127.113.0.10:80", 42, 5, 4},
		{"127.201.255.1:65535", "127.113.0.10:443", 42, 5, 2},
		{"127.200.3.4:2000", "127.113.0.10:80", 2147483649, 100, 29},
		{"127.201.255.1:65535", "127.113.0.10:443", 2147483649, 100, 96},
	} {
		if got := PickNode(netip.MustParseAddrPort(c.source), netip.MustParseAddrPort(c.target), c.seed, c.nodes); got != c.want {
			t.Errorf("%s to %s, seed %d: node %d of %d, the kernel chose %d", c.source, c.target, c.seed, got, c.nodes, c.want)
		}
	}
}

func TestPickNodeSpreadsConnections(t *testing.T) {
	const connections, nodes = 9000, 3
	var seen [nodes]int
	for i := range connections {
		source := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("10.200.%d.%d", i%7, i%251)), uint16(1024+i))
		seen[PickNode(source, webAddress, 1, nodes)]++
	}
	for _, n := range seen {
		if n < connections/nodes*9/10 || n > connections/nodes*11/10 {
			t.Errorf("%d connections over %d nodes: %v", connections, nodes, seen)
			break
		}
	}
}
