//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// connect creates a veth pair from `here` in the calling thread's namespace to `there` in ns. The MAC addresses are
// derived from the names, so that runs send identical packets.
func connect(here, there string, ns *Namespace) error {
	veth := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: here, HardwareAddr: macAddress(here, ns.Name, 0)},
		PeerName:         there,
		PeerHardwareAddr: macAddress(here, ns.Name, 1),
		PeerNamespace:    netlink.NsFd(ns.Fd()),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("creating the veth pair %s: %w", here, err)
	}
	return netlinkUp(here)
}

// bridge describes a bridge. It keeps its address when ports come and go: without one of its own it has the lowest of its ports, and a pod
// that only sends would use a former one for half a minute. It floods multicasts, because nothing in the lab asks for their receivers.
func bridge(name, in string) *netlink.Bridge {
	return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: macAddress(name, in, 2)}, MulticastSnooping: new(false)}
}

// macAddress returns a locally administered unicast address (IEEE 802, second bit of the first byte).
func macAddress(link, peer string, end byte) net.HardwareAddr {
	h := uint32(2166136261) // FNV-1a
	for _, c := range []byte(link + "\x00" + peer) {
		h = (h ^ uint32(c)) * 16777619
	}
	return net.HardwareAddr{0x02, end, byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)}
}

func enslave(name, bridge string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("finding the bridge %s: %w", bridge, err)
	}
	return netlink.LinkSetMaster(link, master)
}

// assign makes a bridge send frames to an address to this port only, also while its link is down. Else it would flood them to the other
// ports. A network card drops frames for others, but a veth shows them to BPF programs, which may answer them.
func assign(port string, to net.HardwareAddr) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("finding %s: %w", port, err)
	}
	if err := netlink.NeighSet(fdbEntry(link, to)); err != nil {
		return fmt.Errorf("adding %s to the bridge's table for %s: %w", to, port, err)
	}
	return nil
}

// fdbEntry is an entry in the table of the port's bridge that does not expire.
func fdbEntry(port netlink.Link, to net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER, HardwareAddr: to}
}

// hairpin makes a bridge send what comes from a port back to it. A pod then reaches itself through a Service, as with the plugins of clusters.
func hairpin(port string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("finding %s: %w", port, err)
	}
	if err := netlink.LinkSetHairpin(link, true); err != nil {
		return fmt.Errorf("setting the hairpin mode of %s: %w", port, err)
	}
	return nil
}

// netlinkUp brings a link up and adds the addresses.
func netlinkUp(name string, prefixes ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	for _, prefix := range prefixes {
		addr := &netlink.Addr{IPNet: ipNet(prefix)}
		if prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("adding to %s the address %s: %w", name, prefix, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting up %s: %w", name, err)
	}
	return nil
}

func addRoute(to netip.Prefix, via netip.Addr) error {
	if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("adding the route to %s via %s: %w", to, via, err)
	}
	return nil
}

// routeToLinks adds routes to addresses on a link.
func routeToLinks(name string, addrs []netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	for _, to := range addrs {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(to, to.BitLen())), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("adding the route to %s on %s: %w", to, name, err)
		}
	}
	return nil
}

// defaultRoutes adds a default route of each gateway's family.
func defaultRoutes(gateways []netip.Addr) (err error) {
	for _, via := range gateways {
		everywhere := netip.IPv4Unspecified()
		if via.Is6() {
			everywhere = netip.IPv6Unspecified()
		}
		err = errors.Join(err, addRoute(netip.PrefixFrom(everywhere, 0), via))
	}
	return err
}

// addLocal makes every address of the prefix local (AnyIP), so that a client can bind each of them.
func addLocal(prefix netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	route := &netlink.Route{Dst: ipNet(prefix), LinkIndex: lo.Attrs().Index, Table: 255, Type: 2, Scope: netlink.SCOPE_HOST}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("making %s local: %w", prefix, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
