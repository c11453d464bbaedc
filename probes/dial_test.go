//go:build unix

package probes

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// DialBesideLanes uses source ports outside of the range of lanes, and each of them once.
func TestDialBesideLanes(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			t.Logf("this machine has no IPv6: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		datagrams, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer datagrams.Close()
		for network, to := range map[string]net.Addr{"tcp": listener.Addr(), "udp": datagrams.LocalAddr()} {
			used := map[uint16]bool{}
			for range 20 {
				conn, err := DialBesideLanes(t.Context(), network, to.String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				port := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
				if used[port] || port >= firstPort && port < firstPort+portCount {
					t.Errorf("%s to %s from port %d; used %v", network, to, port, used)
				}
				used[port] = true
			}
		}
	}
	// A port that another program uses is left out.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	next := nthBesidePort(besidePorts.Load() + 1)
	taken, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv4Unspecified(), next)))
	if err == nil {
		defer taken.Close()
	} else if !errors.Is(err, unix.EADDRINUSE) { // by another program, which serves as well
		t.Fatal(err)
	}
	conn, err := DialBesideLanes(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := netip.MustParseAddrPort(conn.LocalAddr().String()).Port(); got == next {
		t.Errorf("connected from port %d, which is in use", got)
	}
	if _, err := DialBesideLanes(t.Context(), "tcp", "localhost:80"); err == nil {
		t.Error("a name was accepted as an address")
	}
}
