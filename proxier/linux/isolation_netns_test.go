//go:build netns

package linux

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

func isolatedElement(addr string) kernel.Element {
	return kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: netip.MustParseAddr(addr)}}
}

// hostPort listens as a program of the host at all addresses of a family, as sshd does.
func hostPort(t *testing.T, network string) uint16 {
	t.Helper()
	l, err := net.Listen(network, ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveSource(l)
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// addLocal makes an address local, as a virtual one is, also where there is no dummy device.
func addLocal(t *testing.T, addr string) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	if a.Is4() {
		if err := ignore(netlink.RouteAppend(localRoute(a)), unix.EEXIST); err != nil {
			t.Fatal(err)
		}
		return
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, hostAddr(a)); err != nil {
		t.Fatal(err)
	}
}

// Ports of the host are closed at a virtual address, except for health checks, and open at the node's own address.
func TestIsolation(t *testing.T) {
	for _, test := range []struct{ virtual, nodes, network string }{
		{"203.0.113.10", nodeByClient, "tcp4"}, {"fd00:96::10", nodeByClient6, "tcp6"},
	} {
		t.Run(test.virtual, func(t *testing.T) {
			r := newPath6(t)
			f := newTestFilter(t, Options{})
			addLocal(t, test.virtual)
			port := hostPort(t, test.network)
			at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), port) }
			old, err := r.dialTo(t, at(test.virtual), successTimeout)
			if err != nil {
				t.Fatalf("before isolation: %v", err)
			}
			source(t, old)
			if err := f.change([]kernel.Element{isolatedElement(test.virtual)}, nil); err != nil {
				t.Fatal(err)
			}
			refused := func(when string) {
				t.Helper()
				if _, err := r.dialTo(t, at(test.virtual), successTimeout); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: a client's connection ended with %v, want refused", when, err)
				}
				c, err := net.DialTimeout("tcp", at(test.virtual).String(), successTimeout)
				if !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: a connection from the node ended with %v, want refused", when, err)
				}
				if c != nil {
					c.Close()
				}
			}
			refused("isolated")
			source(t, old) // fails if the connection is cut
			if _, err := r.dialTo(t, at(test.nodes), successTimeout); err != nil {
				t.Errorf("at the node's own address: %v", err)
			}
			health := kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: netip.MustParseAddr(test.virtual), Protocol: kernel.TCP, Port: port}}
			if err := f.change([]kernel.Element{health}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := r.dialTo(t, at(test.virtual), successTimeout); err != nil {
				t.Errorf("as a health check port: %v", err)
			}
			if err := f.change(nil, []kernel.Element{health}); err != nil {
				t.Fatal(err)
			}
			refused("after the health check port was removed")
		})
	}
}

// UDP is rejected with port unreachable, and the node's own health port stays open.
func TestIsolationOfUDPAndHealthPort(t *testing.T) {
	r := newPath(t)
	const virtual = "203.0.113.10"
	addLocal(t, virtual)
	port := hostPort(t, "tcp4")
	at := netip.AddrPortFrom(netip.MustParseAddr(virtual), port)
	packets, err := net.ListenPacket("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	go func() {
		b := make([]byte, 8)
		for n, from, err := packets.ReadFrom(b); err == nil; n, from, err = packets.ReadFrom(b) {
			_, _ = packets.WriteTo(b[:n], from)
		}
	}()
	f := newTestFilter(t, Options{HealthPort: port})
	if err := f.change([]kernel.Element{isolatedElement(virtual)}, nil); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, udpFrom(t, r.client, at), successTimeout); got != "refused" {
		t.Errorf("UDP to an isolated address: %q, want refused", got)
	}
	if _, err := r.dialTo(t, at, successTimeout); err != nil {
		t.Errorf("the node's health port at a virtual address: %v", err)
	}
	if err := f.change(nil, []kernel.Element{isolatedElement(virtual)}); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, udpFrom(t, r.client, at), successTimeout); got != "?" {
		t.Errorf("UDP without isolation: %q, so the check above proves nothing", got)
	}
}

// At an isolated address IPVS serves the Service's port, also if the pod is in the host's network; other ports are
// rejected.
func TestIsolationWithIPVS(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	serve(t, k, kernel.FromNode)
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{isolatedElement(vip.Addr.String())}})
	port := hostPort(t, "tcp4")
	c, err := r.vip(t, successTimeout)
	if err != nil {
		t.Fatalf("the Service's port: %v", err)
	}
	if got := source(t, c); got != clientAddr {
		t.Errorf("the server saw %s", got)
	}
	own, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String(), successTimeout)
	if err != nil {
		t.Fatalf("the Service's port, from the node: %v", err)
	}
	defer own.Close()
	source(t, own)
	if _, err := r.dialTo(t, netip.AddrPortFrom(vip.Addr, port), successTimeout); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port of the host ended with %v, want refused", err)
	}
	onHost := kernel.Key{Addr: vip.Addr, Protocol: kernel.TCP, Port: 443}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: onHost}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: onHost, Scheduler: "rr"}},
		kernel.AddReal{Key: onHost, Real: netip.AddrPortFrom(netip.MustParseAddr(nodeByServer), port), Weight: 1})
	if c, err := r.dialTo(t, netip.AddrPortFrom(vip.Addr, onHost.Port), successTimeout); err != nil {
		t.Errorf("a Service with a host-network pod: %v", err)
	} else if got := source(t, c); got != clientAddr {
		t.Errorf("the host-network pod saw %s", got)
	}
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 0})
	if got := source(t, c); got != clientAddr {
		t.Errorf("the draining connection replies %q", got)
	}
}
