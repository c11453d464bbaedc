//go:build netns

package linux

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// newTestAddresses opens addresses with a bridge as their device, since not every kernel has dummy devices.
func newTestAddresses(t *testing.T) *addresses {
	t.Helper()
	blank := func() netlink.Link { return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Device}} }
	a := &addresses{newDevice: blank, deadline: 5 * time.Second, noReply: func() { t.Error("a reply is missing") }}
	if err := errors.Join(a.reopen(), a.ensureDevice()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a
}

// expectBound checks which addresses are read as bound, and that none of them counts as the node's.
func (a *addresses) expectBound(t *testing.T, what string, want ...netip.Addr) {
	t.Helper()
	addrs, err := a.read()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	slices.SortFunc(addrs.Bound, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if diff := cmp.Diff(want, addrs.Bound, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: bound (-want +got):\n%s", what, diff)
	}
	if node := slices.DeleteFunc(addrs.Node, netip.Addr.Is6); len(node) != 1 || node[0] != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%s: addresses of the node are %v, want 127.0.0.1 alone", what, node)
	}
}

func isLocal(addr netip.Addr) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
	if err == nil {
		l.Close()
	}
	return err == nil
}

var one, two, six = netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")

// An address that is also on another proxy's device is bound beside it.
func TestAddresses(t *testing.T) {
	inNamespace(t)
	a := newTestAddresses(t)
	other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}}
	if err := errors.Join(a.netlink.LinkAdd(other), a.netlink.AddrAdd(other, hostAddr(two))); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "initially")
	for range 2 { // the second time they are bound already
		if err := errors.Join(a.bind(one), a.bind(two), a.bind(six)); err != nil {
			t.Fatal(err)
		}
	}
	a.expectBound(t, "bound", one, two, six)
	if err := a.netlink.LinkDel(other); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "after the other proxy", one, two, six)
	for range 2 {
		if err := errors.Join(a.unbind(one), a.unbind(six)); err != nil {
			t.Fatal(err)
		}
	}
	a.expectBound(t, "one", two)
	if isLocal(one) || !isLocal(two) {
		t.Errorf("%s is local: %v; %s is local: %v", one, isLocal(one), two, isLocal(two))
	}
}

// The addresses of an earlier version of the proxier stay bound, and their end makes no other address unreachable.
func TestAddressesOfAnEarlierVersion(t *testing.T) {
	inNamespace(t)
	a := newTestAddresses(t)
	if err := a.netlink.AddrAdd(a.device, hostAddr(two)); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "after an earlier version", two)
	if err := errors.Join(a.bind(two), a.bind(one)); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "bound again", one, two)
	if err := a.unbind(two); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "without it", one)
	if isLocal(two) || !isLocal(one) {
		t.Errorf("%s is local: %v; %s is local: %v", two, isLocal(two), one, isLocal(one))
	}
}

// Without the device IPv4 addresses can be bound and unbound; the next read makes it anew for IPv6.
func TestAddressesWithoutTheDevice(t *testing.T) {
	inNamespace(t)
	a := newTestAddresses(t)
	if err := errors.Join(a.bind(one), a.bind(two), a.netlink.LinkDel(a.device), a.unbind(one)); err != nil {
		t.Fatal(err)
	}
	if err := a.bind(six); err == nil {
		t.Error("an IPv6 address was bound on a deleted device")
	}
	a.expectBound(t, "after the device was removed", two)
	if err := errors.Join(a.bind(six), a.remove()); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "after the cleanup")
}

// Routes of other programs are not the proxier's, whatever their protocol, and the cleanup leaves them.
func TestRoutesOfOthers(t *testing.T) {
	inNamespace(t)
	a := newTestAddresses(t)
	network, other := localRoute(one), localRoute(two)
	network.Dst = &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}
	other.Protocol = unix.RTPROT_STATIC
	elsewhere := localRoute(netip.MustParseAddr("203.0.113.30"))
	elsewhere.LinkIndex = a.device.Attrs().Index
	for _, r := range []*netlink.Route{network, other, elsewhere} {
		if err := a.netlink.RouteAdd(r); err != nil {
			t.Fatal(err)
		}
	}
	a.expectBound(t, "beside others")
	if err := errors.Join(a.bind(one), a.removeRoutes()); err != nil {
		t.Fatal(err)
	}
	a.expectBound(t, "after the cleanup")
	left, err := a.netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}, netlink.RT_FILTER_TABLE)
	if err != nil || len(slices.DeleteFunc(left, func(r netlink.Route) bool { return r.Protocol == unix.RTPROT_KERNEL })) != 3 {
		t.Errorf("routes after the cleanup: %v, %v; want those of others", left, err)
	}
}
