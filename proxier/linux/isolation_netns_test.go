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

func isolated(addr string) kernel.Element {
	return kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: netip.MustParseAddr(addr)}}
}

// hostPort is a program of the host that answers at all addresses of a family, as sshd does.
func hostPort(t *testing.T, network string) uint16 {
	t.Helper()
	l, err := net.Listen(network, ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go tellSource(l)
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// own makes an address the node's, as a virtual one is, where there may be no dummy device.
func own(t *testing.T, addr string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, host(netip.MustParseAddr(addr))); err != nil {
		t.Fatal(err)
	}
}

// A virtual address keeps the ports of the host to itself, those of health checks excepted; the node's own address does not.
func TestIsolation(t *testing.T) {
	for _, test := range []struct{ virtual, nodes, network string }{
		{"203.0.113.10", nodeByClient, "tcp4"}, {"fd00:96::10", nodeByClient6, "tcp6"},
	} {
		t.Run(test.virtual, func(t *testing.T) {
			r := newRoad6(t)
			f := newTestFilter(t, Options{})
			own(t, test.virtual)
			port := hostPort(t, test.network)
			at := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), port) }
			old, err := r.to(t, at(test.virtual), patience)
			if err != nil {
				t.Fatalf("before it is isolated: %v", err)
			}
			source(t, old)
			if err := f.change([]kernel.Element{isolated(test.virtual)}, nil); err != nil {
				t.Fatal(err)
			}
			refused := func(when string) {
				t.Helper()
				if _, err := r.to(t, at(test.virtual), patience); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: a client's connection ended with %v, want refused", when, err)
				}
				c, err := net.DialTimeout("tcp", at(test.virtual).String(), patience)
				if !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: a connection from the node ended with %v, want refused", when, err)
				}
				if c != nil {
					c.Close()
				}
			}
			refused("isolated")
			source(t, old) // fails when it is cut
			if _, err := r.to(t, at(test.nodes), patience); err != nil {
				t.Errorf("at the node's own address: %v", err)
			}
			health := kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: netip.MustParseAddr(test.virtual), Protocol: kernel.TCP, Port: port}}
			if err := f.change([]kernel.Element{health}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := r.to(t, at(test.virtual), patience); err != nil {
				t.Errorf("as a port of health checks: %v", err)
			}
			if err := f.change(nil, []kernel.Element{health}); err != nil {
				t.Fatal(err)
			}
			refused("no port of health checks any more")
		})
	}
}

// UDP is told that nobody listens, and the node's own health port stays open.
func TestIsolationOfUDPAndTheHealthPort(t *testing.T) {
	r := newRoad(t)
	const virtual = "203.0.113.10"
	own(t, virtual)
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
	if err := f.change([]kernel.Element{isolated(virtual)}, nil); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, udpFrom(t, r.client, at), patience); got != "refused" {
		t.Errorf("UDP to an isolated address: %q, want it refused", got)
	}
	if _, err := r.to(t, at, patience); err != nil {
		t.Errorf("the node's health port at a virtual address: %v", err)
	}
	if err := f.change(nil, []kernel.Element{isolated(virtual)}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, udpFrom(t, r.client, at), patience); got != "?" {
		t.Errorf("UDP where nothing is isolated: %q, so the refusal above says nothing", got)
	}
}

// What IPVS serves at an isolated address is not the host's, also where the real server is the node itself (a pod in the
// host's network); what it does not serve is refused.
func TestIsolationBesideIPVS(t *testing.T) {
	r := newRoad(t)
	k := withIPVS(t)
	serve(t, k, kernel.FromNode)
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{isolated(vip.Addr.String())}})
	port := hostPort(t, "tcp4")
	c, err := r.vip(t, patience)
	if err != nil {
		t.Fatalf("the Service's port: %v", err)
	}
	if got := source(t, c); got != clientAddr {
		t.Errorf("the server saw %s", got)
	}
	own, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String(), patience)
	if err != nil {
		t.Fatalf("the Service's port, from the node: %v", err)
	}
	defer own.Close()
	source(t, own)
	if _, err := r.to(t, netip.AddrPortFrom(vip.Addr, port), patience); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port of the host ended with %v, want refused", err)
	}
	onHost := kernel.Key{Addr: vip.Addr, Protocol: kernel.TCP, Port: 443}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: onHost}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: onHost, Scheduler: "rr"}},
		kernel.AddReal{Key: onHost, Real: netip.AddrPortFrom(netip.MustParseAddr(nodeByServer), port), Weight: 1})
	if c, err := r.to(t, netip.AddrPortFrom(vip.Addr, onHost.Port), patience); err != nil {
		t.Errorf("a Service whose pod is in the host's network: %v", err)
	} else if got := source(t, c); got != clientAddr {
		t.Errorf("a pod in the host's network saw %s", got)
	}
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 0})
	if got := source(t, c); got != clientAddr {
		t.Errorf("the connection that drains says %q", got)
	}
}
