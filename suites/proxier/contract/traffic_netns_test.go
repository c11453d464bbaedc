//go:build netns

package contract

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/suites/proxier/testnode"
)

const (
	podPort  = 8080 // port of pods, in all protocols
	hostPort = 2222 // port of a program of the node, at all its addresses
	attempts = 24   // connections per case: with random choices, all miss one of three pods once in 17,000 cases
	timeout  = 2 * time.Second
)

// servePod replies on TCP, UDP and SCTP with the pod's name and the client address that it sees.
func servePod(t *testing.T, h *host) {
	for _, addr := range h.addrs {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), podPort)
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			t.Error(err)
			return
		}
		u, err := net.ListenPacket("udp", at.String())
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close(); u.Close() })
		go serveTCP(l, h.name)
		go serveUDP(u, h.name)
	}
	if err := listenSCTP(t, h); err != nil {
		t.Errorf("SCTP at pod %s: %v", h.name, err)
	}
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
func serveHostPort(t *testing.T) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", hostPort))
	testnode.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go serveTCP(l, "host")
}

// Go's net package has no SCTP, so the code uses raw system calls. Accept has a timeout and is repeated, so that it
// does not block the end of the test.
func listenSCTP(t *testing.T, h *host) error {
	l, err := sctpSocket()
	if err != nil {
		return err
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(over)
		<-ended
		_ = unix.Close(l)
	})
	err = unix.Bind(l, &unix.SockaddrInet4{Port: podPort, Addr: netip.MustParseAddr(h.addrs[0]).As4()})
	if err == nil {
		err = unix.Listen(l, 8)
	}
	go func() {
		defer close(ended)
		for err == nil {
			select {
			case <-over:
				return
			default:
				serveSCTP(l, h.name)
			}
		}
	}()
	return err
}

func serveSCTP(l int, name string) {
	c, from, err := unix.Accept(l)
	if err != nil {
		return
	}
	defer unix.Close(c)
	if four, ok := from.(*unix.SockaddrInet4); ok {
		_, _ = unix.Write(c, []byte(name+" "+netip.AddrFrom4(four.Addr).String()))
	}
}

func sctpSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} { // SO_SNDTIMEO also bounds connect
		if err == nil {
			limit := unix.NsecToTimeval(timeout.Nanoseconds())
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit)
		}
	}
	return fd, err
}

func requestSCTP(to netip.AddrPort) (string, error) {
	fd, err := sctpSocket()
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err
}

// request opens a connection, or sends a packet, and returns the reply.
func (h *host) request(protocol string, to netip.AddrPort) (text string, err error) {
	testnode.InNetns(h.ns, func() {
		if protocol == "sctp" {
			text, err = requestSCTP(to)
			return
		}
		var c net.Conn
		if c, err = net.DialTimeout(protocol, to.String(), timeout); err != nil {
			return
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return
		}
		if protocol == "udp" {
			_, _ = c.Write([]byte("?"))
			buffer := make([]byte, 64)
			n := 0
			n, err = c.Read(buffer)
			text = string(buffer[:n])
			return
		}
		var all []byte
		all, err = io.ReadAll(c)
		text = string(all)
	})
	return text, err
}

// outcome is the result of a case.
type outcome struct {
	pods   string // names of the hosts that replied, or the error: refused, dropped
	source string // client address that they saw: itself, node, or both
}

// measure makes several requests, and fewer if none is answered.
func (w *testbed) measure(from, protocol string, to netip.AddrPort) outcome {
	asker := w.hosts[from]
	pods, seen := map[string]bool{}, map[string]bool{}
	silent := 0
	for n := 0; n < attempts && silent < 2; n++ {
		text, err := asker.request(protocol, to)
		pod, source, answered := strings.Cut(text, " ")
		if err != nil || !answered {
			silent++
			pods[errorWord(err)] = true
			continue
		}
		pods[pod] = true
		name := w.nameOf(source)
		if name == from && from != "node" {
			name = "itself"
		}
		seen[name] = true
	}
	return outcome{joinSorted(pods), joinSorted(seen)}
}

func joinSorted(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), " ") }

func errorWord(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ETIMEDOUT), errors.As(err, &network) && network.Timeout():
		return "dropped"
	case err == nil:
		return "silent"
	}
	return err.Error()
}

// healthCheck requests a health check at the node and returns status and weight.
func (w *testbed) healthCheck(port int) (outcome string) {
	testnode.InNetns(w.hosts["client"].ns, func() {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), uint16(port)).String(), timeout)
		if err != nil {
			outcome = errorWord(err)
			return
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			outcome = errorWord(err)
			return
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			outcome = errorWord(err)
			return
		}
		defer response.Body.Close()
		outcome = fmt.Sprintf("%d, weight %s", response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"))
	})
	return outcome
}
