//go:build netns

package observers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// translated translates an external address to a backend that drops packets and to ports without listeners. The node itself
// rejects connections to one port.
const translated = `
table ip proxy {
	chain output {
		type nat hook output priority -100
		ip daddr 203.0.113.10 tcp dport 80 dnat to 10.99.0.1:8080
		ip daddr 203.0.113.10 tcp dport 82 dnat to 10.99.0.1:8082
		ip daddr 203.0.113.10 udp dport 53 dnat to 10.99.0.1:5353
	}
	chain filter {
		type filter hook output priority 0
		ip daddr 203.0.113.10 tcp dport 81 reject
	}
	chain backend {
		type filter hook input priority 0
		tcp dport 8082 drop
	}
}
`

// The lookup finds the backend of a connection that gets no answer. It finds none for a connection that the node rejected, nor
// for one that the backend refused: the kernel deletes a connection whose only answer is a reset.
func TestConntrackLookup(t *testing.T) {
	ns := newNamespace(t)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		for _, address := range []string{"10.99.0.1/32", "203.0.113.10/32"} {
			own, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(lo, own); err != nil {
				return err
			}
		}
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(translated)
		out, err := c.CombinedOutput()
		t.Log(string(out))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lookUp, err := openConntrack(Node{Name: "node", Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	for port, c := range map[uint16]struct {
		source, want string
		refused      bool
	}{80: {"10.99.0.1:40080", "", true}, 81: {"10.99.0.1:40081", "", true}, 82: {"10.99.0.1:40082", "10.99.0.1:8082", false}} {
		tuple := Tuple{Source: netip.MustParseAddrPort(c.source), Target: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.10"), port)}
		_ = ns.Do(func() error {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(tuple.Source), Timeout: 2 * time.Second}
			conn, err := d.DialContext(context.Background(), "tcp", tuple.Target.String())
			if err == nil {
				conn.Close()
			}
			if err == nil || errors.Is(err, unix.ECONNREFUSED) != c.refused {
				t.Errorf("%s: %v; refused is %v", tuple.Target, err, c.refused)
			}
			return nil
		})
		backend, found, err := lookUp(tuple)
		if err != nil || found != (c.want != "") || (found && backend.String() != c.want) {
			t.Errorf("port %d: %s, %v, %v; want %q", port, backend, found, err, c.want)
		}
	}
	udp := Tuple{Source: netip.MustParseAddrPort("10.99.0.1:40053"), Target: netip.MustParseAddrPort("203.0.113.10:53"), UDP: true}
	err = ns.Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(udp.Source), net.UDPAddrFromAddrPort(udp.Target))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if backend, found, err := lookUp(udp); err != nil || !found || backend.String() != "10.99.0.1:5353" {
		t.Errorf("UDP: %s, %v, %v", backend, found, err)
	}
}
