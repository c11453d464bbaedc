package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// RouteProtocol marks the routes that make IPv4 addresses local, as the routing protocol of rtnetlink(7). `ip route show table local proto
// 104` lists them.
const RouteProtocol = 104

// loopbackIndex is the index of lo in each network namespace (LOOPBACK_IFINDEX in the kernel's include/net/flow.h).
const loopbackIndex = 1

// localRoute is the route that makes an IPv4 address local, as an address of a device is. Linux scans all addresses before it adds one, and
// no routes. The next full read repairs the loss of the routes with the last address of lo.
func localRoute(addr netip.Addr) *netlink.Route {
	return &netlink.Route{LinkIndex: loopbackIndex, Dst: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}, Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: RouteProtocol}
}

// appendRoute appends the request that adds a localRoute. A route of another proxy's device to the same address stays beside it.
func (b *batchSocket) appendRoute(addr netip.Addr) {
	const fullPrefix, noSource, noTOS, noFlags = 32, 0, 0, 0
	at := b.begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, unix.AF_INET, fullPrefix, noSource, noTOS,
		unix.RT_TABLE_LOCAL, RouteProtocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, noFlags, noFlags, noFlags, noFlags)
	b.attribute(unix.RTA_DST, addr.AsSlice()...)
	b.attribute32(unix.RTA_OIF, loopbackIndex)
	b.end(at)
}

// openRoutes returns a socket that lists routes. Since v4.20 the kernel itself leaves out other routes, of which a router has many.
func openRoutes(deadline time.Duration) (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	if err := ignore(h.SetStrictCheck(true), unix.ENOPROTOOPT); err != nil {
		h.Close()
		return nil, fmt.Errorf("restricting a netlink socket to the proxier's routes: %w", err)
	}
	if err := h.SetSocketTimeout(deadline); err != nil {
		h.Close()
		return nil, fmt.Errorf("setting the deadline of a netlink socket: %w", err)
	}
	return h, nil
}

// localRoutes lists the addresses that have a localRoute.
func (a *addresses) localRoutes() (addrs []netip.Addr, err error) {
	own := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: RouteProtocol, Type: unix.RTN_LOCAL, LinkIndex: loopbackIndex}
	const filter = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL | netlink.RT_FILTER_TYPE | netlink.RT_FILTER_OIF
	routes, err := dump(func() ([]netlink.Route, error) { return a.routes.RouteListFiltered(netlink.FAMILY_V4, own, filter) })
	if err != nil && !errors.Is(err, unix.ENOENT) { // a new network namespace has no such table
		return nil, fmt.Errorf("listing the local routes of the node: %w", a.checkTimeout(err))
	}
	for _, r := range routes {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP.To4()); ok && isFull(r.Dst.Mask) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// isFull reports whether a mask of IPv4 is that of one address.
func isFull(mask net.IPMask) bool {
	ones, bits := mask.Size()
	return ones == 32 && bits == 32
}

// addRoutes adds the addresses that have local routes to the bound ones.
func (a *addresses) addRoutes(all *kernel.Addresses) error {
	routes, err := a.localRoutes()
	if err != nil {
		return err
	}
	for _, addr := range routes {
		if !a.earlier[addr] {
			all.Bound = append(all.Bound, addr)
		}
	}
	return nil
}

// removeRoutes deletes the local routes.
func (a *addresses) removeRoutes() error {
	addrs, err := a.localRoutes()
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := a.deleteRoute(addr); err != nil {
			return fmt.Errorf("deleting the local route of %s: %w", addr, err)
		}
	}
	return nil
}

// deleteRoute deletes the local route of an address, if there is one.
func (a *addresses) deleteRoute(addr netip.Addr) error {
	return ignore(a.checkTimeout(a.netlink.RouteDel(localRoute(addr))), unix.ESRCH)
}
