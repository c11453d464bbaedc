package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// openView opens a node's kernel.
func openView(mode string, node *topology.Node) (view, error) {
	if mode == "nftables" {
		return openNFTables(node)
	}
	return openIPVS(node)
}

// ipvsView reads IPVS by socket options (linux/ip_vs.h), which cost a twentieth of what netlink does.
type ipvsView struct{ socket int }

// The socket options, and the layout of what they hand over, on a little-endian 64-bit machine.
const (
	optService = 1152 + 3 // IP_VS_SO_GET_SERVICE: ip_vs_service_entry
	optDests   = 1152 + 4 // IP_VS_SO_GET_DESTS: ip_vs_get_dests and its entries

	serviceSize, serviceAddr, servicePortAt, serviceDests = 104, 4, 8, 44
	destsHeader, destsCount                               = 24, 16
	destSize, destAddr, destPortAt, destWeight            = 96, 0, 4, 12
)

func openIPVS(node *topology.Node) (view, error) {
	v := &ipvsView{}
	err := node.Do(func() (err error) {
		v.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket on IPVS: %w", err)
	}
	return v, nil
}

func (v *ipvsView) close() { unix.Close(v.socket) }

// changed is always true: IPVS tells nobody.
func (v *ipvsView) changed() (bool, error) { return true, nil }

// has asks for the virtual server, its real servers, and whether its address is the node's own. Real servers of weight 0
// only keep their connections.
func (v *ipvsView) has(want *virtual) (bool, error) {
	found, err := v.reals(want.addr)
	if err != nil || found == nil {
		return false, err
	}
	for _, a := range want.reals {
		if found[netip.AddrPortFrom(a, podPort)] <= 0 {
			return false, nil
		}
		delete(found, netip.AddrPortFrom(a, podPort))
	}
	for _, weight := range found {
		if weight > 0 {
			return false, nil
		}
	}
	return v.local(want.addr)
}

// reals returns the weights of a virtual server's real servers; nil when there is no such server.
func (v *ipvsView) reals(addr netip.Addr) (map[netip.AddrPort]int, error) {
	entry := make([]byte, serviceSize)
	key := func(b []byte) {
		binary.LittleEndian.PutUint16(b, unix.IPPROTO_TCP)
		copy(b[serviceAddr:], addr.AsSlice())
		binary.BigEndian.PutUint16(b[servicePortAt:], servicePort)
	}
	key(entry)
	if err := v.get(optService, entry); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading virtual server %s: %w", addr, err)
	}
	n := binary.LittleEndian.Uint32(entry[serviceDests:])
	list := make([]byte, destsHeader+destSize*int(n))
	key(list)
	binary.LittleEndian.PutUint32(list[destsCount:], n)
	if err := v.get(optDests, list); err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // it changed meanwhile
			return nil, nil
		}
		return nil, fmt.Errorf("reading the real servers of %s: %w", addr, err)
	}
	found := make(map[netip.AddrPort]int, n)
	for entry := range chunks(list[destsHeader:], destSize) {
		a, _ := netip.AddrFromSlice(entry[destAddr:][:4])
		found[netip.AddrPortFrom(a, binary.BigEndian.Uint16(entry[destPortAt:]))] = int(int32(binary.LittleEndian.Uint32(entry[destWeight:])))
	}
	return found, nil
}

func chunks(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) >= size && yield(b[:size]) {
			b = b[size:]
		}
	}
}

func (v *ipvsView) get(option int, b []byte) error {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(v.socket), unix.IPPROTO_IP, uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// local reports whether an address is the node's own: then, and only then, a socket can be bound to it.
func (v *ipvsView) local(addr netip.Addr) (bool, error) {
	err := unix.Bind(v.socket, &unix.SockaddrInet4{Addr: addr.As4()})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return false, nil
	}
	return err == nil, err
}
