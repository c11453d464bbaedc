//go:build !portable

package probes

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/epoll"
)

// System calls of the engine, none of which can block. They bypass the Go scheduler (RawSyscall), as those of package epoll do, and for
// its reason. That was a quarter of the CPU of an attempt at 200/s, and three more wake-ups. Unlike the wrappers they do not allocate
// for socket addresses and TCP_INFO. Callers own the memory of the arguments.

func sysSocket(family, kind int) (int, unix.Errno) {
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind), 0)
	return int(fd), errno
}

func sysSetsockopt(fd, level, option int, value unsafe.Pointer, size uintptr) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(value), size, 0)
	return errno
}

func sysSetsockoptInt(fd, level, option int, value *int32) unix.Errno {
	return sysSetsockopt(fd, level, option, unsafe.Pointer(value), unsafe.Sizeof(*value))
}

func sysGetsockopt(fd, level, option int, value unsafe.Pointer, size *uint32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(size)), 0)
	return errno
}

// sysAddress calls SYS_BIND or SYS_CONNECT.
func sysAddress(call uintptr, fd int, address *socketAddress) unix.Errno {
	_, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&address.bytes)), address.size)
	return errno
}

func sysGetsockname(fd int, address *socketAddress) unix.Errno {
	size := uint32(len(address.bytes))
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd),
		uintptr(unsafe.Pointer(&address.bytes)), uintptr(unsafe.Pointer(&size)))
	address.size = uintptr(size)
	return errno
}

// sysClose closes the descriptor, which Linux does even when it returns an error.
func sysClose(fd int) { epoll.CloseSocket(fd) }

func sysTimerSet(timer int, spec *unix.ItimerSpec) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(timer), unix.TFD_TIMER_ABSTIME,
		uintptr(unsafe.Pointer(spec)), 0, 0, 0)
	return errno
}

// socketAddress is a struct sockaddr_in or sockaddr_in6 (ip(7), ipv6(7)).
type socketAddress struct {
	bytes [unix.SizeofSockaddrInet6]byte
	size  uintptr
}

func (s *socketAddress) set(a netip.AddrPort) {
	binary.BigEndian.PutUint16(s.bytes[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(s.bytes[:], unix.AF_INET)
		four := a.Addr().As4()
		copy(s.bytes[4:], four[:])
		clear(s.bytes[8:unix.SizeofSockaddrInet4])
		s.size = unix.SizeofSockaddrInet4
		return
	}
	binary.NativeEndian.PutUint16(s.bytes[:], unix.AF_INET6)
	six := a.Addr().As16()
	clear(s.bytes[4:])
	copy(s.bytes[8:], six[:])
	s.size = unix.SizeofSockaddrInet6
}

// get returns the address; an invalid one for another family or a wrong size.
func (s *socketAddress) get() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.bytes[2:])
	address := netip.Addr{}
	switch family := binary.NativeEndian.Uint16(s.bytes[:]); {
	case family == unix.AF_INET && s.size >= unix.SizeofSockaddrInet4:
		address, _ = netip.AddrFromSlice(s.bytes[4:8])
	case family == unix.AF_INET6 && s.size >= unix.SizeofSockaddrInet6:
		address, _ = netip.AddrFromSlice(s.bytes[8:24])
	default:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, port)
}
