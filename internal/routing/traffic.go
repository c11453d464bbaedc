//go:build linux

package routing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hostPort = 2222 // port of a program of the node, at all its addresses
	attempts = 40   // connections per case: with random choices, all miss one of three pods once in 3,600,000 cases
	timeout  = 2 * time.Second
)

// servePod replies on TCP, UDP and SCTP with the pod's name and the client address that it sees.
func (w *Testbed) servePod(ctx context.Context, h *host) error {
	for _, addr := range h.addrs {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), podPort)
		l, err := h.ns.Listen(ctx, "tcp", at.String())
		if err != nil {
			return err
		}
		var u net.PacketConn
		err = h.ns.Do(func() (err error) {
			u, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", at.String())
			return err
		})
		if err != nil {
			return errors.Join(err, l.Close())
		}
		w.closers = append(w.closers, l.Close, u.Close)
		go serveTCP(l, h.name)
		go serveUDP(u, h.name)
		if err := w.listenSCTP(h, at); err != nil {
			w.sctp = err // of this kernel
		}
	}
	return nil
}

func serveTCP(l net.Listener, name string) {
	for c, err := l.Accept(); err == nil; c, err = l.Accept() {
		_, _ = io.WriteString(c, reply(name, c.RemoteAddr()))
		c.Close()
	}
}

func serveUDP(u net.PacketConn, name string) {
	buffer := make([]byte, 16)
	for _, from, err := u.ReadFrom(buffer); err == nil; _, from, err = u.ReadFrom(buffer) {
		_, _ = u.WriteTo([]byte(reply(name, from)), from)
	}
}

func reply(name string, from net.Addr) string {
	return name + " " + netip.MustParseAddrPort(from.String()).Addr().Unmap().String()
}

// serveHostPort is a program of the node, which must not be reachable at virtual addresses.
func (w *Testbed) serveHostPort(ctx context.Context) error {
	l, err := w.node.Listen(ctx, "tcp", fmt.Sprintf(":%d", hostPort))
	if err != nil {
		return err
	}
	w.closers = append(w.closers, l.Close)
	go serveTCP(l, "host")
	return nil
}

// Go's net package has no SCTP, so the code uses raw system calls. Accept has a timeout and is repeated, so that it
// does not block the end of the checks.
func (w *Testbed) listenSCTP(h *host, at netip.AddrPort) error {
	var l int
	err := h.ns.Do(func() (err error) {
		l, err = sctpSocket(at.Addr())
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(l, sockaddr(at)), unix.Listen(l, 8)); err != nil {
		return errors.Join(err, unix.Close(l))
	}
	over, ended := make(chan struct{}), make(chan struct{})
	w.closers = append(w.closers, func() error {
		close(over)
		<-ended
		return unix.Close(l)
	})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
				serveSCTP(l, h.name)
			}
		}
	}()
	return nil
}

func serveSCTP(l int, name string) {
	c, from, err := unix.Accept(l)
	if err != nil {
		return
	}
	defer unix.Close(c)
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		_, _ = unix.Write(c, []byte(name+" "+netip.AddrFrom4(from.Addr).String()))
	case *unix.SockaddrInet6:
		_, _ = unix.Write(c, []byte(name+" "+netip.AddrFrom16(from.Addr).String()))
	}
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

func sctpSocket(to netip.Addr) (int, error) {
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} { // SO_SNDTIMEO also bounds connect
		if err == nil {
			limit := unix.NsecToTimeval(timeout.Nanoseconds())
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit)
		}
	}
	return fd, err
}

func requestSCTP(to netip.AddrPort) (string, error) {
	fd, err := sctpSocket(to.Addr())
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	from := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(clientPort()))
	if to.Addr().Is6() {
		from = netip.AddrPortFrom(netip.IPv6Unspecified(), from.Port())
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return "", fmt.Errorf("binding port %d of SCTP: %w", from.Port(), err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err
}

// request opens a connection, or sends a packet, and returns the reply.
func (h *host) request(protocol string, to netip.AddrPort) (text string, err error) {
	if h.asker != "" {
		return askBy(h.asker, protocol, to)
	}
	err = h.ns.Do(func() error {
		text, err = ask(protocol, to)
		return err
	})
	return text, err
}

// ask is request on a thread in the host's namespace.
func ask(protocol string, to netip.AddrPort) (string, error) {
	if protocol == "sctp" {
		return requestSCTP(to)
	}
	dialer := net.Dialer{Timeout: timeout}
	if protocol == "udp" {
		dialer.LocalAddr = &net.UDPAddr{Port: clientPort()}
	}
	c, err := dialer.Dial(protocol, to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if protocol == "udp" {
		_, _ = c.Write([]byte("?"))
		buffer := make([]byte, 64)
		n, err := c.Read(buffer)
		return string(buffer[:n]), err
	}
	all, err := io.ReadAll(c)
	return string(all), err
}

// measure makes several requests, and fewer if none is answered. It returns the names of the hosts that replied, or the errors:
// refused, dropped; and the client addresses that they saw, and that those of other nodes saw: itself, node, or both.
func (w *Testbed) measure(from, protocol string, to netip.AddrPort) (pods, sources, elsewhere string) {
	asker := w.hosts[from]
	replied, seen, remote := map[string]bool{}, map[string]bool{}, map[string]bool{}
	silent := 0
	for n := 0; n < attempts && silent < 2; n++ {
		text, err := asker.request(protocol, to)
		pod, source, answered := strings.Cut(text, " ")
		if err != nil || !answered {
			silent++
			replied[errorWord(err)] = true
			continue
		}
		replied[pod] = true
		name := w.nameOf(source)
		if name == from && from != "node" {
			name = "itself"
		}
		seen[name] = true
		if h := w.hosts[pod]; h != nil && h.nodeName != nodeName {
			remote[name] = true
		}
	}
	return joinSorted(replied), joinSorted(seen), joinSorted(remote)
}

func joinSorted(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), " ") }

func errorWord(err error) string {
	var network net.Error
	var reported wordError
	switch {
	case errors.As(err, &reported):
		return string(reported)
	// Cilium, which translates connect(2), refuses by EPERM up to 1.15 and by EHOSTUNREACH in 1.20.
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPERM), errors.Is(err, unix.EHOSTUNREACH):
		return "refused"
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ETIMEDOUT), errors.As(err, &network) && network.Timeout():
		return "dropped"
	case err == nil:
		return "silent"
	}
	return err.Error()
}

// healthCheck requests a health check at the node and returns status and weight.
func (w *Testbed) healthCheck(to netip.AddrPort) string {
	var text string
	err := w.hosts["client"].ns.Do(func() error {
		c, err := net.DialTimeout("tcp", to.String(), timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text = fmt.Sprintf("%d, weight %s", response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"))
		return nil
	})
	if err != nil {
		return errorWord(err)
	}
	return text
}
