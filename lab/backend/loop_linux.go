package backend

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/epoll"
)

// loop accepts the connections of the port for HTTP, and answers the requests of probes on them, and datagrams. It is one goroutine,
// because each switch between threads costs real time in a VM. A connection with any other request goes to net/http.
type loop struct {
	set      *epoll.Set
	listener int
	udp      int // the port for UDP, or -1
	server   *server
	conns    map[int32]*quickConn
	others   *handedOver
	full     bool // the process had no descriptor for another connection
	out      []byte
	datagram [2048]byte
}

// accept returns the loop of the open ports for HTTP and UDP.
func (s *server) accept(ports *listeners, others *handedOver) (*loop, error) {
	l := &loop{listener: -1, udp: -1, server: s, conns: map[int32]*quickConn{}, others: others}
	if err := l.open(ports); err != nil {
		l.close()
		return nil, fmt.Errorf("taking over the ports for HTTP and UDP: %w", err)
	}
	return l, nil
}

func (l *loop) open(ports *listeners) (err error) {
	if l.listener, err = detach(ports.http.(*net.TCPListener)); err != nil {
		return err
	}
	options := []struct{ level, name, value int }{ // accepted sockets inherit them (tcp(7))
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(KeepAlive.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(l.listener, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if ports.udp != nil {
		if l.udp, err = detach(ports.udp.(*net.UDPConn)); err != nil {
			return err
		}
	}
	if l.set, err = epoll.Open(); err != nil {
		return err
	}
	for _, fd := range []int{l.listener, l.udp} {
		if fd < 0 {
			continue
		}
		if errno := l.set.Control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, int32(fd), 0); errno != 0 {
			return os.NewSyscallError("epoll_ctl", errno)
		}
	}
	return nil
}

// detach returns the socket of a port without the Go runtime's poller.
func detach(port interface {
	File() (*os.File, error)
	Close() error
}) (int, error) {
	file, err := port.File()
	if err != nil {
		return -1, err
	}
	defer file.Close()
	if err := port.Close(); err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)) // file.Fd made it block
}

// stop ends run from another goroutine. Connections without an unanswered request are closed with it.
func (l *loop) stop() { _ = l.set.Close() }

const inputEdges = unix.EPOLLIN | unix.EPOLLRDHUP

// run returns nil after stop.
func (l *loop) run() error {
	defer l.close()
	var events [32]epoll.Event
	for {
		n, err := l.set.Wait(events[:])
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for connections: %w", err)
		}
		for _, event := range events[:n] {
			if err := l.handle(event); err != nil {
				return err
			}
		}
	}
}

func (l *loop) handle(event epoll.Event) error {
	switch int(event.Fd) {
	case l.listener:
		return l.acceptAll()
	case l.udp:
		return l.answerDatagrams()
	}
	if c := l.conns[event.Fd]; c != nil {
		l.read(c)
		if l.full { // and a descriptor may be free now
			return l.acceptAll()
		}
	}
	return nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		epoll.CloseSocket(c.fd)
	}
	for _, fd := range []int{l.listener, l.udp} {
		if fd >= 0 {
			epoll.CloseSocket(fd)
		}
	}
}
