package linux

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// RouteProtocol marks the routes that make IPv4 addresses local, as the routing protocol of rtnetlink(7). `ip route show table local proto
// 104` lists them.
const RouteProtocol = 104

// loopbackIndex is the index of lo in each network namespace (LOOPBACK_IFINDEX in the kernel's include/net/flow.h).
const loopbackIndex = 1

// localRoute is the route that makes an IPv4 address local. It has the effect of the address on a device, and Linux does not scan all other
// addresses to add it. Routes over lo stay when the last address of another device is deleted.
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

// localRoutes lists the local routes of the proxier.
func (a *addresses) localRoutes() ([]netlink.Route, error) {
	own := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: RouteProtocol}
	routes, err := dump(func() ([]netlink.Route, error) {
		return a.netlink.RouteListFiltered(netlink.FAMILY_V4, own, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the local routes of the node: %w", a.checkTimeout(err))
	}
	return routes, nil
}

// addRoutes adds the addresses that have local routes to the bound ones.
func (a *addresses) addRoutes(all *kernel.Addresses) error {
	routes, err := a.localRoutes()
	if err != nil {
		return err
	}
	known := map[netip.Addr]bool{}
	for _, addr := range all.Bound {
		known[addr] = true
	}
	for _, r := range routes {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok && !known[addr.Unmap()] {
			all.Bound = append(all.Bound, addr.Unmap())
		}
	}
	return nil
}

// removeRoutes deletes the local routes.
func (a *addresses) removeRoutes() error {
	routes, err := a.localRoutes()
	if err != nil {
		return err
	}
	for i := range routes {
		if err := ignore(a.checkTimeout(a.netlink.RouteDel(&routes[i])), unix.ESRCH); err != nil {
			return fmt.Errorf("deleting the local route of %s: %w", routes[i].Dst, err)
		}
	}
	return nil
}
