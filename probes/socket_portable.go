//go:build unix && (!linux || portable)

package probes

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Unseen says what the attempts of this platform cannot see; it is part of the kernel's release in records. docs/measuring.md explains it.
const Unseen = "without TCP_INFO and ICMP errors"

// sockets makes the system calls of attempts with what every Unix has: no TCP_INFO, no queue of ICMP errors and no filters of sockets.
// docs/measuring.md says what it cannot see. It is not safe for concurrent use.
type sockets struct {
	poller      *poller
	unreachable map[int]icmp // port unreachables of UDP sockets that were read from them, and not yet given to an attempt
	six         map[int]bool
}

func newSockets(p *poller) *sockets {
	return &sockets{poller: p, unreachable: map[int]icmp{}, six: map[int]bool{}}
}

// open creates a non-blocking socket (kind is SOCK_STREAM or SOCK_DGRAM), bound to source if that is valid. With again the port may
// have been used shortly before.
func (s *sockets) open(kind int, target, source netip.AddrPort, again bool) (int, syscall.Errno) {
	family := unix.AF_INET
	if !target.Addr().Is4() {
		family = unix.AF_INET6
	}
	fd, err := openSocket(family, kind)
	if err == nil && source.IsValid() {
		if again {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}
		if err == nil {
			err = unix.Bind(fd, socketAddress(source))
		}
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return -1, errnoOf(err)
	}
	if kind == unix.SOCK_DGRAM {
		s.six[fd] = family == unix.AF_INET6
	}
	return fd, 0
}

// openSocket returns a non-blocking socket that child processes do not inherit.
func openSocket(family, kind int) (int, error) {
	syscall.ForkLock.RLock() // macOS cannot open it so at once
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(family, kind, 0)
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fd)
	return fd, unix.SetNonblock(fd, true)
}

// connect starts the handshake; EINPROGRESS is the normal result.
func (s *sockets) connect(fd int, target netip.AddrPort) syscall.Errno {
	return errnoOf(unix.Connect(fd, socketAddress(target)))
}

// disableErrorQueue does nothing: there is none.
func (s *sockets) disableErrorQueue(int, netip.AddrPort) syscall.Errno { return 0 }

// retransmits estimates the number of retransmitted SYNs from the time since the first one, since the first retransmission comes after 1 s.
func (s *sockets) retransmits(_ int, waited time.Duration) uint8 {
	if waited >= synLost {
		return 1
	}
	return 0
}

// local returns the address that the kernel chose; an invalid one without a local address.
func (s *sockets) local(fd int) netip.AddrPort {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(own.Addr), uint16(own.Port))
	}
	return netip.AddrPort{}
}

// handshakeError returns the socket's error. Of ICMP errors it knows those that UDP sockets report: nothing else refuses a datagram.
func (s *sockets) handshakeError(fd int) (syscall.Errno, icmp) {
	queued := s.unreachable[fd]
	delete(s.unreachable, fd)
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return syscall.EIO, queued
	}
	switch errno := syscall.Errno(value); errno {
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN: // reported after connect: not for want of a route on this machine
		return errno, icmp{errno: errno, origin: originUnseen}
	default:
		return errno, queued
	}
}

// nextError returns an ICMP error of a UDP socket, without the payload: the datagram that caused it is unknown.
func (s *sockets) nextError(fd int, _ []byte) ([]byte, icmp, bool) {
	queued, found := s.unreachable[fd]
	delete(s.unreachable, fd)
	return nil, queued, found
}

// read and write transfer bytes without blocking; b must not be empty.
func (s *sockets) read(fd int, b []byte) (int, syscall.Errno) {
	n, err := unix.Read(fd, b)
	return max(n, 0), s.transferred(fd, err)
}

func (s *sockets) write(fd int, b []byte) (int, syscall.Errno) {
	n, err := unix.Write(fd, b)
	return max(n, 0), s.transferred(fd, err)
}

// transferred keeps the ICMP error of a UDP socket, which the kernel reports once.
func (s *sockets) transferred(fd int, err error) syscall.Errno {
	errno := errnoOf(err)
	if six, udp := s.six[fd]; udp && errno == syscall.ECONNREFUSED {
		s.unreachable[fd] = icmp{errno: errno, origin: originICMP, typ: 3, code: 3}
		if six {
			s.unreachable[fd] = icmp{errno: errno, origin: originICMP6, typ: 1, code: 4}
		}
	}
	return errno
}

// dropPackets holds back what the kernel reports about the attempt's socket: for TCP until the SYN would have been sent again, for UDP
// for ever. The kernel has the answer nevertheless.
func (s *sockets) dropPackets(f *flight) syscall.Errno {
	until := never
	if !f.lane.overUDP() {
		until = f.Start + synTimeout
	}
	s.poller.hold(f.fd, until)
	return 0
}

// synTimeout is the first timeout of a SYN (RFC 6298).
const synTimeout = time.Second

// acceptPackets does nothing: the held time ends by itself.
func (s *sockets) acceptPackets(int) {}

// close closes the connection with a FIN, or with a RST (SO_LINGER 0).
func (s *sockets) close(fd int, abort bool) {
	if abort {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // cannot fail on an open socket
	}
	delete(s.six, fd)
	delete(s.unreachable, fd)
	s.poller.forget(fd)
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// errnoOf returns the errno of a system call; 0 for none.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		return syscall.EIO
	}
	return errno
}
