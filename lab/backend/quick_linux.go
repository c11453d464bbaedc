package backend

import (
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/epoll"
)

// quickConn is a connection of the loop. The request so far is in[:n]; all earlier ones have their answers.
type quickConn struct {
	fd     int
	client netip.Addr
	n      int
	in     [2048]byte
}

func (l *loop) acceptAll() error {
	for {
		var address unix.RawSockaddrInet6
		size := uint32(unix.SizeofSockaddrInet6)
		fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(l.listener), uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)),
			unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		l.full = errno == unix.EMFILE || errno == unix.ENFILE
		switch {
		case errno == unix.EAGAIN || l.full:
			return nil
		case errno == unix.ECONNABORTED || errno == unix.EINTR:
			continue
		case errno != 0:
			return os.NewSyscallError("accept4", errno)
		}
		l.begin(&quickConn{fd: int(fd), client: clientOf(&address).Addr()})
	}
}

// begin reads what has come already before it watches the connection, which saves an event.
func (l *loop) begin(c *quickConn) {
	l.conns[int32(c.fd)] = c
	l.read(c)
	if l.conns[int32(c.fd)] != c {
		return
	}
	if errno := l.set.Control(unix.EPOLL_CTL_ADD, c.fd, inputEdges, int32(c.fd), 0); errno != 0 {
		l.end(c)
	}
}

// read answers all requests that have come. The connection ends with its last byte.
func (l *loop) read(c *quickConn) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[c.n])), uintptr(len(c.in)-c.n), 0, 0, 0)
		switch {
		case errno == unix.EAGAIN:
			return
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			l.end(c)
			return
		}
		c.n += int(n)
		if !l.answerAll(c) {
			return
		}
	}
}

// answerAll answers the requests of c.in. It returns false if the loop has the connection no more.
func (l *loop) answerAll(c *quickConn) bool {
	for c.n > 0 {
		size, quick := requestSize(c.in[:c.n])
		if size == 0 && quick && c.n < len(c.in) {
			return true // the rest is still to come
		}
		var out []byte
		if size > 0 {
			out = l.server.quick(l.out[:0], c.client)
		}
		if out == nil {
			l.handOver(c, nil)
			return false
		}
		l.out = out
		c.n = copy(c.in[:], c.in[size:c.n])
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno != 0 && errno != unix.EAGAIN:
			l.end(c)
			return false
		case errno == unix.EAGAIN || int(sent) < len(out): // the client does not read
			if errno != 0 {
				sent = 0
			}
			l.handOver(c, append([]byte(nil), out[sent:]...))
			return false
		}
	}
	return true
}

func (l *loop) end(c *quickConn) {
	delete(l.conns, int32(c.fd))
	epoll.CloseSocket(c.fd)
}

// handOver gives a connection to net/http, with what the client has sent and has yet to get.
func (l *loop) handOver(c *quickConn, unsent []byte) {
	delete(l.conns, int32(c.fd))
	_ = l.set.Control(unix.EPOLL_CTL_DEL, c.fd, 0, 0, 0) // fails for one that begins
	file := os.NewFile(uintptr(c.fd), "connection")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return // closed, as after a failed accept
	}
	if tcp, ok := conn.(*net.TCPConn); ok { // FileConn sets its own
		_ = tcp.SetKeepAlivePeriod(KeepAlive)
	}
	l.others.add(conn, append([]byte(nil), c.in[:c.n]...), unsent)
}
