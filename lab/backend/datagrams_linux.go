package backend

import (
	"encoding/binary"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (l *loop) answerDatagrams() error {
	for {
		var address unix.RawSockaddrInet6
		size := uint32(unix.SizeofSockaddrInet6)
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(l.udp), uintptr(unsafe.Pointer(&l.datagram)), uintptr(len(l.datagram)), 0,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)))
		switch {
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR || errno == unix.ECONNREFUSED: // the ICMP error of a client that is gone
			continue
		case errno != 0:
			return os.NewSyscallError("recvfrom", errno)
		}
		answer, ok := l.server.reply(string(l.datagram[:n]), clientOf(&address).String(), l.server.options.UDPPort)
		if !ok || answer == "" {
			continue
		}
		out := append(l.out[:0], answer...)
		l.out = out
		// It fails with the ICMP error of a client that is gone; other clients must still be served.
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(l.udp), uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), 0,
			uintptr(unsafe.Pointer(&address)), uintptr(size))
	}
}

// clientOf returns the address of an IPv4 or IPv6 client.
func clientOf(a *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&a.Port))[:])
	if a.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(a)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), port)
}
