//go:build linux

package observers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ServiceProbe checks cheaply and often whether a node's kernel serves an IPv4 Service address over TCP with given backends.
// The benchmark uses it; Tables covers every protocol and family at a higher cost of a read.
type ServiceProbe interface {
	// Changed reports whether anything may have changed since the last call.
	Changed() (bool, error)
	// Serves reports whether new connections to the address reach exactly these backends.
	Serves(address netip.AddrPort, backends []netip.AddrPort) (bool, error)
	Close()
}

// NewServiceProbe opens the kernel of a node whose proxy is in mode ipvs or, as kube-proxy 1.37 programs it, nftables.
func NewServiceProbe(mode string, node Node) (ServiceProbe, error) {
	switch mode {
	case "ipvs":
		return openIPVSSockopt(node)
	case "nftables":
		return openKubeProxyTable(node)
	}
	return nil, fmt.Errorf("reading the kernel state of a proxy in mode %s is not supported; the modes are ipvs and nftables", mode)
}

// ipvsSockopt reads IPVS by socket options (linux/ip_vs.h), at a twentieth of the cost of netlink.
type ipvsSockopt struct{ socket int }

// Socket options and the layout of their structures on a little-endian 64-bit machine.
const (
	optService = 1152 + 3 // IP_VS_SO_GET_SERVICE: ip_vs_service_entry
	optDests   = 1152 + 4 // IP_VS_SO_GET_DESTS: ip_vs_get_dests and its entries

	serviceSize, serviceAddr, servicePortAt, serviceDests = 104, 4, 8, 44
	destsHeader, destsCount                               = 24, 16
	destSize, destAddr, destPortAt, destWeight            = 96, 0, 4, 12
)

func openIPVSSockopt(node Node) (*ipvsSockopt, error) {
	v := &ipvsSockopt{}
	err := node.Do(func() (err error) {
		v.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a socket on IPVS: %w", err)
	}
	return v, nil
}

func (v *ipvsSockopt) Close() { unix.Close(v.socket) }

// Changed always returns true: IPVS has no notifications and no generation.
func (v *ipvsSockopt) Changed() (bool, error) { return true, nil }

// Serves also requires that the address is local to the node. Real servers of weight 0 get no new connections.
func (v *ipvsSockopt) Serves(address netip.AddrPort, backends []netip.AddrPort) (bool, error) {
	weights, err := v.realServers(address)
	if err != nil || weights == nil {
		return false, err
	}
	for _, b := range backends {
		if weights[b] <= 0 {
			return false, nil
		}
		delete(weights, b)
	}
	for _, weight := range weights {
		if weight > 0 {
			return false, nil
		}
	}
	return v.isLocal(address.Addr())
}

// realServers returns the weights of a virtual server's real servers; nil when there is no such virtual server.
func (v *ipvsSockopt) realServers(address netip.AddrPort) (map[netip.AddrPort]int, error) {
	entry := make([]byte, serviceSize)
	key := func(b []byte) {
		binary.LittleEndian.PutUint16(b, unix.IPPROTO_TCP)
		copy(b[serviceAddr:], address.Addr().AsSlice())
		binary.BigEndian.PutUint16(b[servicePortAt:], address.Port())
	}
	key(entry)
	if err := v.getsockopt(optService, entry); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading virtual server %s: %w", address, err)
	}
	n := binary.LittleEndian.Uint32(entry[serviceDests:])
	list := make([]byte, destsHeader+destSize*int(n))
	key(list)
	binary.LittleEndian.PutUint32(list[destsCount:], n)
	if err := v.getsockopt(optDests, list); err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // changed between the two calls
			return nil, nil
		}
		return nil, fmt.Errorf("reading the real servers of %s: %w", address, err)
	}
	weights := make(map[netip.AddrPort]int, n)
	for entry := list[destsHeader:]; len(entry) >= destSize; entry = entry[destSize:] {
		a, _ := netip.AddrFromSlice(entry[destAddr:][:4])
		weights[netip.AddrPortFrom(a, binary.BigEndian.Uint16(entry[destPortAt:]))] = int(int32(binary.LittleEndian.Uint32(entry[destWeight:])))
	}
	return weights, nil
}

func (v *ipvsSockopt) getsockopt(option int, b []byte) error {
	n := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(v.socket), unix.IPPROTO_IP, uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// isLocal uses that a socket can be bound to local addresses only.
func (v *ipvsSockopt) isLocal(addr netip.Addr) (bool, error) {
	err := unix.Bind(v.socket, &unix.SockaddrInet4{Addr: addr.As4()})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return false, nil
	}
	return err == nil, err
}
