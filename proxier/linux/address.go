package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Device is the dummy device that holds the virtual addresses of IPv6. It stays down: its addresses are local anyway, and it
// sends nothing. IPv4 addresses have local routes instead (see route.go).
const Device = "hitless-ipvs0"

// otherProxyDevices are devices on which other proxies keep virtual addresses. Their addresses are not node
// addresses, so a Service may use them here too while one proxy replaces another.
var otherProxyDevices = []string{"kube-ipvs0", "kube-dummy-if"}

// maxDumpAttempts bounds the reads of a list that concurrent changes interrupt.
const maxDumpAttempts = 5

type addresses struct {
	newDevice func() netlink.Link // returns the device to create; tests use another type where there is no dummy
	deadline  time.Duration
	noReply   func()
	netlink   *netlink.Handle
	routes    *netlink.Handle // lists routes
	batches   *batchSocket
	device    netlink.Link // nil if missing in read-only mode
	readOnly  bool
	earlier   map[netip.Addr]bool // IPv4 addresses on the device, where earlier versions of the proxier bound them; of the last read
}

func openAddresses(deadline time.Duration, noReply func()) (*addresses, error) {
	dummy := func() netlink.Link { return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: Device}} }
	a := &addresses{newDevice: dummy, deadline: deadline, noReply: noReply}
	if err := a.reopen(); err != nil {
		return nil, err
	}
	return a, a.ensureDevice()
}

func (a *addresses) reopen() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket for addresses: %w", err)
	}
	if err := h.SetSocketTimeout(a.deadline); err != nil {
		h.Close()
		return fmt.Errorf("setting the deadline of a netlink socket: %w", err)
	}
	r, err := openRoutes(a.deadline)
	if err != nil {
		h.Close()
		return err
	}
	b, err := openBatches(unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		r.Close()
		return err
	}
	a.close()
	a.netlink, a.routes, a.batches = h, r, b
	return nil
}

func (a *addresses) close() {
	if a.netlink != nil {
		a.netlink.Close()
		a.routes.Close()
		a.batches.close()
		a.netlink, a.routes, a.batches = nil, nil, nil
	}
}

// checkTimeout replaces the socket after a lost reply, so that a late reply is not taken for another call's.
func (a *addresses) checkTimeout(err error) error {
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	a.noReply()
	return errors.Join(fmt.Errorf("%w within %v", kernel.ErrNoReply, a.deadline), a.reopen())
}

// ensureDevice finds or creates the device.
func (a *addresses) ensureDevice() error {
	link, err := a.netlink.LinkByName(Device)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) && a.readOnly {
		a.device = nil
		return nil
	}
	if errors.As(err, &missing) {
		if err = a.netlink.LinkAdd(a.newDevice()); err == nil || errors.Is(err, unix.EEXIST) {
			link, err = a.netlink.LinkByName(Device)
		}
	}
	if err != nil {
		return fmt.Errorf("creating the device %s for virtual addresses: %w; this needs the module dummy and CAP_NET_ADMIN", Device, a.checkTimeout(err))
	}
	if a.readOnly {
		a.device = link
		return nil
	}
	if want := a.newDevice().Type(); link.Type() != want {
		return fmt.Errorf("the device %s has type %s, not %s, and belongs to another program; rename it", Device, link.Type(), want)
	}
	a.device = link
	return nil
}

func (a *addresses) bind(addr netip.Addr) error {
	if addr.Is4() {
		return ignore(a.checkTimeout(a.netlink.RouteAppend(localRoute(addr))), unix.EEXIST)
	}
	return ignore(a.checkTimeout(a.netlink.AddrAdd(a.device, hostAddr(addr))), unix.EEXIST)
}

// bindAll binds many addresses in batches (linux/if_addr.h, linux/rtnetlink.h).
func (a *addresses) bindAll(addrs []netip.Addr) []error {
	err := a.batches.setDeadline(time.Now().Add(a.deadline))
	var errs []error
	if err == nil {
		errs, err = a.batches.exchange(len(addrs), func(i int) { a.appendRequest(addrs[i]) })
	}
	if err != nil {
		return repeatError(a.checkTimeout(err), len(addrs))
	}
	for i := range errs {
		errs[i] = ignore(errs[i], unix.EEXIST)
	}
	return errs
}

func (a *addresses) appendRequest(addr netip.Addr) {
	if addr.Is4() {
		a.batches.appendRoute(addr)
		return
	}
	b, as := a.batches, hostAddr(addr)
	message := []byte{unix.AF_INET6, byte(addr.BitLen()), 0, unix.RT_SCOPE_UNIVERSE}
	at := b.begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		binary.NativeEndian.AppendUint32(message, uint32(a.device.Attrs().Index))...)
	b.attribute(unix.IFA_LOCAL, as.IP...)
	b.attribute(unix.IFA_ADDRESS, as.IP...)
	b.attribute32(unix.IFA_FLAGS, uint32(as.Flags))
	b.end(at)
}

// unbind ends that an address is local. An IPv4 address can be on the device too, since an earlier version of the proxier.
func (a *addresses) unbind(addr netip.Addr) error {
	if addr.Is4() {
		if err := a.deleteRoute(addr); err != nil || !a.earlier[addr] {
			return err
		}
	}
	return ignore(a.checkTimeout(a.netlink.AddrDel(a.device, hostAddr(addr))), unix.EADDRNOTAVAIL)
}

// hostAddr returns the address with a full prefix. IPv6 duplicate detection is off, since it would delay the use of
// the address.
func hostAddr(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// read lists the virtual addresses and those of the node, and recreates a missing device. Link-local addresses of the
// device are the kernel's own and are left out.
func (a *addresses) read() (kernel.Addresses, error) {
	var all kernel.Addresses
	if err := a.ensureDevice(); err != nil {
		return all, err
	}
	links, err := dump(a.netlink.LinkList)
	if err != nil {
		return all, fmt.Errorf("listing the devices of the node: %w", a.checkTimeout(err))
	}
	devices := map[int]netlink.Link{}
	for _, l := range links {
		devices[l.Attrs().Index] = l
	}
	list, err := dump(func() ([]netlink.Addr, error) { return a.netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return all, fmt.Errorf("listing the addresses of the node: %w", a.checkTimeout(err))
	}
	a.earlier = map[netip.Addr]bool{}
	for _, found := range list {
		addr, ok := netip.AddrFromSlice(found.IP)
		if !ok {
			continue
		}
		a.classify(&all, addr.Unmap(), devices[found.LinkIndex])
	}
	return all, a.addRoutes(&all)
}

// classify adds an address to the list of its kind of device. A device that was created after the listing counts as a
// network device.
func (a *addresses) classify(all *kernel.Addresses, addr netip.Addr, on netlink.Link) {
	switch {
	case on == nil:
		all.Node = append(all.Node, addr)
	case a.device != nil && on.Attrs().Index == a.device.Attrs().Index:
		if !addr.IsLinkLocalUnicast() {
			all.Bound = append(all.Bound, addr)
			a.earlier[addr] = addr.Is4()
		}
	case slices.Contains(otherProxyDevices, on.Attrs().Name):
	case on.Type() == "dummy":
		all.Virtual = append(all.Virtual, addr)
	default:
		all.Node = append(all.Node, addr)
	}
}

// dump repeats a listing that the kernel reports as inconsistent (NLM_F_DUMP_INTR).
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range maxDumpAttempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}
