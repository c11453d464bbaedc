//go:build !portable

package probes

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Unseen says what the attempts of this platform cannot see: nothing.
const Unseen = ""

// sockets makes the system calls of attempts with reused memory. It is not safe for concurrent use.
type sockets struct {
	peer    socketAddress
	info    unix.TCPInfo
	size    uint32
	on, off int32
	linger  unix.Linger
	dropAll *unix.SockFprog // drops every packet
	scratch [1024]byte      // control messages
}

func newSockets(*poller) *sockets {
	return &sockets{on: 1, linger: unix.Linger{Onoff: 1}, dropAll: newDropFilter()}
}

// open creates a non-blocking socket (kind is SOCK_STREAM or SOCK_DGRAM) with a queue of ICMP errors (ip(7),
// IP_RECVERR), bound to source if that is valid. With again the port may have been used shortly before.
func (s *sockets) open(kind int, target, source netip.AddrPort, again bool) (int, syscall.Errno) {
	family := unix.AF_INET
	if !target.Addr().Is4() {
		family = unix.AF_INET6
	}
	fd, errno := sysSocket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	errno = s.errorQueue(fd, target, &s.on)
	if errno == 0 && source.IsValid() {
		if again { // bind(2) accepts a port in TIME_WAIT; connect(2) decides
			errno = sysSetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, &s.on)
		}
		if errno == 0 {
			s.peer.set(source)
			errno = sysAddress(unix.SYS_BIND, fd, &s.peer)
		}
	}
	if errno != 0 {
		sysClose(fd)
		return -1, errno
	}
	return fd, 0
}

// errorQueue turns the queue of ICMP errors on or off.
func (s *sockets) errorQueue(fd int, target netip.AddrPort, on *int32) syscall.Errno {
	if target.Addr().Is4() {
		return sysSetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, on)
	}
	return sysSetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, on)
}

// connect starts the handshake; EINPROGRESS is the normal result.
func (s *sockets) connect(fd int, target netip.AddrPort) syscall.Errno {
	s.peer.set(target)
	return sysAddress(unix.SYS_CONNECT, fd, &s.peer)
}

// disableErrorQueue makes the socket an ordinary one: with the queue, an ICMP error on an established connection is
// fatal at once, while other clients ignore it (tcp_v4_err(), RFC 1122 4.2.3.9).
func (s *sockets) disableErrorQueue(fd int, target netip.AddrPort) syscall.Errno {
	return s.errorQueue(fd, target, &s.off)
}

// retransmits returns TCP_INFO's tcpi_total_retrans: before the first data, the number of retransmitted SYNs.
func (s *sockets) retransmits(fd int, _ time.Duration) uint8 {
	s.size = uint32(unsafe.Sizeof(s.info))
	s.info.Total_retrans = 0
	if sysGetsockopt(fd, unix.IPPROTO_TCP, unix.TCP_INFO, unsafe.Pointer(&s.info), &s.size) != 0 {
		return 0
	}
	return uint8(min(s.info.Total_retrans, 255))
}

// local returns the address that the kernel chose; an invalid one without a local address.
func (s *sockets) local(fd int) netip.AddrPort {
	if sysGetsockname(fd, &s.peer) != 0 {
		return netip.AddrPort{}
	}
	return s.peer.get()
}

// handshakeError returns the errors of a failed handshake: the socket's error, then the first ICMP error of its queue.
// The order matters: reading the last error of the queue clears the socket's (sock_dequeue_err_skb()).
func (s *sockets) handshakeError(fd int) (syscall.Errno, icmp) {
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return unix.EIO, icmp{}
	}
	errno := syscall.Errno(value)
	for {
		_, n, _, _, err := unix.Recvmsg(fd, nil, s.scratch[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return errno, icmp{} // EAGAIN: the queue is empty
		}
		if queued := queuedError(s.scratch[:n]); queued.present() {
			return errno, queued
		}
	}
}

// nextError returns the next ICMP error of the queue and the returned payload; false when the queue is empty.
func (s *sockets) nextError(fd int, buffer []byte) ([]byte, icmp, bool) {
	for {
		n, controls, _, _, err := unix.Recvmsg(fd, buffer, s.scratch[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return nil, icmp{}, false
		}
		if queued := queuedError(s.scratch[:controls]); queued.present() {
			return buffer[:n], queued, true
		}
	}
}

func queuedError(control []byte) icmp {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return icmp{}
	}
	for _, m := range messages {
		four := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		six := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if four || six {
			return parseError(m.Data)
		}
	}
	return icmp{}
}

// read and write transfer bytes without blocking; b must not be empty.
func (s *sockets) read(fd int, b []byte) (int, syscall.Errno) {
	return sysTransfer(unix.SYS_READ, fd, b)
}
func (s *sockets) write(fd int, b []byte) (int, syscall.Errno) {
	return sysTransfer(unix.SYS_WRITE, fd, b)
}

func sysTransfer(call uintptr, fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// dropPackets makes the kernel drop each packet for the attempt's socket, and acceptPackets ends that.
func (s *sockets) dropPackets(f *flight) syscall.Errno {
	return sysSetsockopt(f.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, unsafe.Pointer(s.dropAll), unsafe.Sizeof(*s.dropAll))
}

func (s *sockets) acceptPackets(fd int) {
	_ = sysSetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, &s.off) // no error: the filter is attached
}

// newDropFilter returns a filter that drops every packet: it keeps 0 bytes.
func newDropFilter() *unix.SockFprog {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}

// close closes the connection with a FIN, or with a RST (SO_LINGER 0, socket(7)).
func (s *sockets) close(fd int, abort bool) {
	if abort { // cannot fail on an open socket
		sysSetsockopt(fd, unix.SOL_SOCKET, unix.SO_LINGER, unsafe.Pointer(&s.linger), unsafe.Sizeof(s.linger))
	}
	sysClose(fd)
}

// parseError parses the control message of an error queue: the error, then the offender's socket address
// (SO_EE_OFFENDER, ip(7)). Short or unknown data give an error without origin.
func parseError(data []byte) icmp {
	const size = 16 // of struct sock_extended_err
	if len(data) < size {
		return icmp{}
	}
	e := icmp{errno: syscall.Errno(binary.NativeEndian.Uint32(data)), origin: data[4], typ: data[5], code: data[6]}
	address := data[size:]
	if len(address) < 2 {
		return e
	}
	switch family := binary.NativeEndian.Uint16(address); {
	case family == unix.AF_INET && len(address) >= unix.SizeofSockaddrInet4:
		e.offender, _ = netip.AddrFromSlice(address[4:8])
	case family == unix.AF_INET6 && len(address) >= unix.SizeofSockaddrInet6:
		e.offender, _ = netip.AddrFromSlice(address[8:24])
	}
	return e
}
