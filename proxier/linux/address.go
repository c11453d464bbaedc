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

// Device is the dummy device that holds the virtual addresses. It stays down: an address is the node's own all the same,
// and a device that is down sends nothing.
const Device = "hitless-ipvs0"

// otherProxies are devices on which other proxies keep virtual addresses. Those are no addresses of the node, so a
// Service may have them here too, as while one proxy takes over from another.
var otherProxies = []string{"kube-ipvs0", "kube-dummy-if"}

// dumps is how often an interrupted list is read before giving up; interfaces that come and go interrupt it.
const dumps = 5

type addresses struct {
	blank    func() netlink.Link // a device that is not made yet; tests use another type where there is no dummy
	deadline time.Duration
	lost     func()
	netlink  *netlink.Handle
	batches  *batches
	device   netlink.Link // nil when it is missing and nothing may be made
	readOnly bool
}

func openAddresses(deadline time.Duration, lost func()) (*addresses, error) {
	dummy := func() netlink.Link { return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: Device}} }
	a := &addresses{blank: dummy, deadline: deadline, lost: lost}
	if err := a.reopen(); err != nil {
		return nil, err
	}
	return a, a.ensure()
}

func (a *addresses) reopen() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink handle on addresses: %w", err)
	}
	if err := h.SetSocketTimeout(a.deadline); err != nil {
		h.Close()
		return fmt.Errorf("setting the deadline of a netlink handle: %w", err)
	}
	b, err := openBatches(unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return err
	}
	a.close()
	a.netlink, a.batches = h, b
	return nil
}

func (a *addresses) close() {
	if a.netlink != nil {
		a.netlink.Close()
		a.batches.close()
		a.netlink, a.batches = nil, nil
	}
}

// checked gives the handle up when a reply was lost, so that the late reply meets nobody.
func (a *addresses) checked(err error) error {
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	a.lost()
	return errors.Join(fmt.Errorf("%w within %v", kernel.ErrNoReply, a.deadline), a.reopen())
}

// ensure finds the device, or makes it.
func (a *addresses) ensure() error {
	link, err := a.netlink.LinkByName(Device)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) && a.readOnly {
		a.device = nil
		return nil
	}
	if errors.As(err, &missing) {
		if err = a.netlink.LinkAdd(a.blank()); err == nil || errors.Is(err, unix.EEXIST) {
			link, err = a.netlink.LinkByName(Device)
		}
	}
	if err != nil {
		return fmt.Errorf("making the device %s for virtual addresses: %w; it needs the module dummy and CAP_NET_ADMIN", Device, a.checked(err))
	}
	if a.readOnly {
		a.device = link
		return nil
	}
	if want := a.blank().Type(); link.Type() != want {
		return fmt.Errorf("the device %s is of type %s, not %s: somebody else's; rename it", Device, link.Type(), want)
	}
	a.device = link
	return nil
}

func (a *addresses) bind(addr netip.Addr) error {
	return unless(a.checked(a.netlink.AddrAdd(a.device, host(addr))), unix.EEXIST)
}

// bindAll is bind for many addresses, in the form of linux/if_addr.h.
func (a *addresses) bindAll(addrs []netip.Addr) []error {
	err := a.batches.until(time.Now().Add(a.deadline))
	var errs []error
	if err == nil {
		errs, err = a.batches.do(len(addrs), func(i int) { a.write(addrs[i]) })
	}
	if err != nil {
		return repeated(a.checked(err), len(addrs))
	}
	for i := range errs {
		errs[i] = unless(errs[i], unix.EEXIST)
	}
	return errs
}

func (a *addresses) write(addr netip.Addr) {
	b, as := a.batches, host(addr)
	family := byte(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	message := []byte{family, byte(addr.BitLen()), 0, unix.RT_SCOPE_UNIVERSE}
	at := b.begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		binary.NativeEndian.AppendUint32(message, uint32(a.device.Attrs().Index))...)
	b.attribute(unix.IFA_LOCAL, as.IP...)
	b.attribute(unix.IFA_ADDRESS, as.IP...)
	if as.Flags != 0 {
		b.attribute32(unix.IFA_FLAGS, uint32(as.Flags))
	}
	b.end(at)
}

func (a *addresses) unbind(addr netip.Addr) error {
	return unless(a.checked(a.netlink.AddrDel(a.device, host(addr))), unix.EADDRNOTAVAIL)
}

// host is the address alone. Nobody else can have a virtual address, so IPv6 need not look for duplicates, during which the
// address would not work.
func host(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// read lists the addresses of the device and of the node, and makes the device again if somebody removed it. The kernel's
// own link-local addresses on the device are not what the proxier bound.
func (a *addresses) read() (kernel.Addresses, error) {
	var all kernel.Addresses
	if err := a.ensure(); err != nil {
		return all, err
	}
	links, err := dump(a.netlink.LinkList)
	if err != nil {
		return all, fmt.Errorf("listing the devices of the node: %w", a.checked(err))
	}
	devices := map[int]netlink.Link{}
	for _, l := range links {
		devices[l.Attrs().Index] = l
	}
	list, err := dump(func() ([]netlink.Addr, error) { return a.netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return all, fmt.Errorf("listing the addresses of the node: %w", a.checked(err))
	}
	for _, found := range list {
		addr, ok := netip.AddrFromSlice(found.IP)
		if !ok {
			continue
		}
		a.sort(&all, addr.Unmap(), devices[found.LinkIndex])
	}
	return all, nil
}

// sort puts an address into the list that its device stands for. A device that came meanwhile is like any other.
func (a *addresses) sort(all *kernel.Addresses, addr netip.Addr, on netlink.Link) {
	switch {
	case on == nil:
		all.Node = append(all.Node, addr)
	case a.device != nil && on.Attrs().Index == a.device.Attrs().Index:
		if !addr.IsLinkLocalUnicast() {
			all.Bound = append(all.Bound, addr)
		}
	case slices.Contains(otherProxies, on.Attrs().Name):
	case on.Type() == "dummy":
		all.Virtual = append(all.Virtual, addr)
	default:
		all.Node = append(all.Node, addr)
	}
}

// dump reads a list again when the kernel says that it changed meanwhile (NLM_F_DUMP_INTR).
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}
