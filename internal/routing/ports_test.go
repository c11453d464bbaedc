// A new network namespace has no loopback that is up.
//go:build linux && !netns

package routing

import (
	"net"
	"net/netip"
	"testing"
)

// No two requests of UDP have one port, so that each is a flow of its own. Of ports at random, 500 have four pairs on average.
func TestRequestsAreFlowsOfTheirOwn(t *testing.T) {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go func() {
		buffer := make([]byte, 16)
		for _, from, err := u.ReadFrom(buffer); err == nil; _, from, err = u.ReadFrom(buffer) {
			_, _ = u.WriteTo([]byte(from.String()), from)
		}
	}()
	seen := map[string]bool{}
	for range 500 {
		from, err := ask("udp", netip.MustParseAddrPort(u.LocalAddr().String()))
		if err != nil || seen[from] {
			t.Fatalf("a request comes from %s, as an earlier one: %v", from, err)
		}
		seen[from] = true
	}
}

// The ports of SCTP are those of UDP: not every kernel that runs this test has SCTP.
func TestPortsOfRequestsDoNotRepeat(t *testing.T) {
	seen := map[int]bool{}
	for range clientPorts {
		port := clientPort()
		if seen[port] || port < firstPort || port >= firstPort+clientPorts {
			t.Fatalf("port %d of a request is another's, or in the range of others", port)
		}
		seen[port] = true
	}
}
