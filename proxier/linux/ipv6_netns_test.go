//go:build netns

package linux

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

const (
	client6       = "2001:db8:1::2"
	nodeByClient6 = "2001:db8:1::1"
	nodeByServer6 = "2001:db8:2::1"
	server6       = "2001:db8:2::2"
)

var vip6 = kernel.Key{Addr: netip.MustParseAddr("fd00:96::10"), Protocol: kernel.TCP, Port: 80}

// newPath6 is a testPath with IPv4 and IPv6.
func newPath6(t *testing.T) testPath {
	t.Helper()
	r := newPath(t)
	node, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	setAddress(t, node, "client", nodeByClient6, "")
	setAddress(t, node, "server", nodeByServer6, "")
	setAddress(t, r.client, "eth0", client6, nodeByClient6)
	setAddress(t, r.server, "eth0", server6, nodeByServer6)
	if err := (sysctl{"net/ipv6/conf/all/forwarding", "1", "forwarding"}).set("/proc/sys"); err != nil {
		t.Fatal(err)
	}
	go serveSource(openIn(t, r.server, func() (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(server6, fmt.Sprint(serverPort)))
	}))
	return r
}

// setAddress gives an interface an address and waits for duplicate detection of its link-local address, before which
// the kernel resolves no neighbours.
func setAddress(t *testing.T, ns netns.NsHandle, link, addr, gateway string) {
	t.Helper()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(addr + "/64")
	if err != nil {
		t.Fatal(err)
	}
	a.Flags = unix.IFA_F_NODAD
	if err := h.AddrAdd(l, a); err != nil {
		t.Fatal(err)
	}
	waitFor(t, link+" to have its addresses", func() bool {
		all, err := h.AddrList(l, netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		return len(all) >= 2 && !slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 })
	})
	if gateway != "" {
		if err := h.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
			t.Fatal(err)
		}
	}
}

// IPv6 filter rules and flows, which do not need IPVS.
func TestIPv6MasqueradeAndSourceRanges(t *testing.T) {
	r := newPath6(t)
	f := newTestFilter(t, Options{})
	target := netip.AddrPortFrom(netip.MustParseAddr(server6), serverPort)
	at := func(set kernel.Set, from string) kernel.Element {
		e := kernel.Element{Set: set, Key: kernel.Key{Addr: target.Addr(), Protocol: kernel.TCP, Port: serverPort}}
		if from != "" {
			e.Source = netip.MustParsePrefix(from)
		}
		return e
	}
	for _, test := range []struct {
		name string
		sets []kernel.Element
		want string // source that the server sees; empty if the connection is dropped
	}{
		{"nothing", nil, client6},
		{"masqueraded", []kernel.Element{at(kernel.Masquerade, "")}, nodeByServer6},
		{"dropped", []kernel.Element{at(kernel.Drop, "")}, ""},
		{"allowed", []kernel.Element{at(kernel.Restricted, ""), at(kernel.Allowed, "2001:db8:1::/64"), at(kernel.Allowed, "fd00::/8")}, client6},
		{"not allowed", []kernel.Element{at(kernel.Restricted, ""), at(kernel.Allowed, "2001:db8:2::/64")}, ""},
	} {
		if err := f.change(test.sets, elements(t, f)); err != nil {
			t.Fatal(err)
		}
		timeout := successTimeout
		if test.want == "" {
			timeout = failureTimeout
		}
		c, err := r.dialTo(t, target, timeout)
		if (err == nil) != (test.want != "") {
			t.Errorf("%s: %v", test.name, err)
		} else if err == nil && source(t, c) != test.want {
			t.Errorf("%s: the server did not see source %s", test.name, test.want)
		}
	}
}

func TestIPv6ThroughIPVS(t *testing.T) {
	r := newPath6(t)
	k := openIPVSKernel(t)
	if err := k.IPv6(); err != nil {
		t.Fatal(err)
	}
	pod := netip.AddrPortFrom(netip.MustParseAddr(server6), serverPort)
	nodePort := kernel.Key{Addr: netip.MustParseAddr(nodeByClient6), Protocol: kernel.TCP, Port: 30080}
	for _, key := range []kernel.Key{vip6, nodePort} {
		apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Masquerade, Key: key}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: key, Scheduler: "rr"}},
			kernel.AddReal{Key: key, Real: pod, Weight: 1})
	}
	apply(t, k, kernel.Bind{Addr: vip6.Addr})
	for _, key := range []kernel.Key{vip6, nodePort} {
		c, err := r.dialTo(t, netip.AddrPortFrom(key.Addr, key.Port), successTimeout)
		if err != nil {
			t.Fatalf("to %v: %v", key, err)
		}
		if got := source(t, c); got != nodeByServer6 {
			t.Errorf("to %v: the server saw %s, want %s", key, got, nodeByServer6)
		}
		apply(t, k, kernel.SetWeight{Key: key, Real: pod, Weight: 0})
		if got := source(t, c); got != nodeByServer6 {
			t.Errorf("to %v at weight 0: the old connection replies %q", key, got)
		}
	}
	addrs, err := k.Addresses()
	if err != nil || !slices.Equal(addrs.Bound, []netip.Addr{vip6.Addr}) || !slices.Contains(addrs.Node, nodePort.Addr) || slices.Contains(addrs.Node, vip6.Addr) {
		t.Errorf("addresses %+v, error %v", addrs, err)
	}
	s, exists, err := k.Server(vip6)
	if err != nil || !exists || s.Virtual != (kernel.Virtual{Key: vip6, Scheduler: "rr"}) || len(s.Reals) != 1 || s.Reals[0].Addr != pod {
		t.Errorf("read back as %+v, %v, %v", s, exists, err)
	}
	apply(t, k, kernel.DeleteVirtual{Key: vip6}, kernel.Unbind{Addr: vip6.Addr})
	if addrs, err = k.Addresses(); err != nil || len(addrs.Bound) > 0 {
		t.Errorf("after everything was removed: %+v, error %v", addrs, err)
	}
}

// With affinity a client keeps its pod, until the pod drains.
func TestAffinityThroughIPVS(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	answerUDP(t, r, 1, 2)
	sticky := kernel.Virtual{Key: dns, Scheduler: "rr", Affinity: 10 * time.Second}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Masquerade, Key: dns}}}, kernel.AddVirtual{Virtual: sticky},
		kernel.AddReal{Key: dns, Real: dnsPod(1), Weight: 1}, kernel.AddReal{Key: dns, Real: dnsPod(2), Weight: 1}, kernel.Bind{Addr: dns.Addr})
	fresh := func() string {
		return exchangeUntilReply(t, udpFrom(t, r.client, netip.AddrPortFrom(dns.Addr, dns.Port)))
	}
	first := fresh()
	for range 6 {
		if got := fresh(); got != first {
			t.Fatalf("one client reached pod %s and then %s", first, got)
		}
	}
	leaves, other := dnsPod(1), "2"
	if first == "2" {
		leaves, other = dnsPod(2), "1"
	}
	apply(t, k, kernel.SetWeight{Key: dns, Real: leaves, Weight: 0})
	if got := fresh(); got != other {
		t.Errorf("after its pod drained, the client reached %s, want %s (kubernetes#71834)", got, other)
	}
	apply(t, k, kernel.SetWeight{Key: dns, Real: leaves, Weight: 1})
	if got := fresh(); got != other {
		t.Errorf("after the pod returned, the client reached %s, want still %s", got, other)
	}
	apply(t, k, kernel.UpdateVirtual{Virtual: kernel.Virtual{Key: dns, Scheduler: "rr"}})
	seen := map[string]bool{}
	for range 4 {
		seen[fresh()] = true
	}
	if len(seen) != 2 {
		t.Errorf("without affinity one client reached %v, want both pods", seen)
	}
}
