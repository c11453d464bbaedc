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

	"github.com/hitless/hitless/suites/proxier/stage"
)

const (
	target   = 8080 // what pods serve on, in all protocols
	hostPort = 2222 // of a program of the node, at all its addresses
	tries    = 24   // connections of one question: one of three pods is missed by all once in 17,000 questions of random choices
	timeout  = 2 * time.Second
)

// serve lets a pod say on TCP, UDP and SCTP who it is, and whom it sees.
func serve(t *testing.T, h *host) {
	for _, addr := range h.addrs {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), target)
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
		_, _ = io.WriteString(c, answer(name, c.RemoteAddr()))
		c.Close()
	}
}

func serveUDP(u net.PacketConn, name string) {
	buffer := make([]byte, 16)
	for _, from, err := u.ReadFrom(buffer); err == nil; _, from, err = u.ReadFrom(buffer) {
		_, _ = u.WriteTo([]byte(answer(name, from)), from)
	}
}

func answer(name string, from net.Addr) string {
	return name + " " + netip.MustParseAddrPort(from.String()).Addr().Unmap().String()
}

// program is one of the node itself, which nobody has to see at a virtual address.
func program(t *testing.T) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", hostPort))
	stage.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go serveTCP(l, "host")
}

// Go's net does not know SCTP, so these are plain sockets. One that waits in the kernel for good would hold up the end of a test, so
// it waits for a while only, and again until the test is over.
func listenSCTP(t *testing.T, h *host) error {
	l, err := sctp()
	if err != nil {
		return err
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(over)
		<-ended
		_ = unix.Close(l)
	})
	err = unix.Bind(l, &unix.SockaddrInet4{Port: target, Addr: netip.MustParseAddr(h.addrs[0]).As4()})
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

func sctp() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} { // the first bounds connect too
		if err == nil {
			limit := unix.NsecToTimeval(timeout.Nanoseconds())
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit)
		}
	}
	return fd, err
}

func askSCTP(to netip.AddrPort) (string, error) {
	fd, err := sctp()
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

// askOnce opens a connection, or sends a packet, and returns what the one who answers says.
func (h *host) askOnce(protocol string, to netip.AddrPort) (text string, err error) {
	stage.Inside(h.ns, func() {
		if protocol == "sctp" {
			text, err = askSCTP(to)
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

// outcome is what came of a question.
type outcome struct {
	pods string // who answered, by name, or why nobody did: refused, dropped
	seen string // as whom they saw who asked: itself, or node, or both
}

// ask asks many times, and fewer where nobody answers.
func (w *world) ask(from, protocol string, to netip.AddrPort) outcome {
	asker := w.hosts[from]
	pods, seen := map[string]bool{}, map[string]bool{}
	silent := 0
	for n := 0; n < tries && silent < 2; n++ {
		text, err := asker.askOnce(protocol, to)
		pod, source, answered := strings.Cut(text, " ")
		if err != nil || !answered {
			silent++
			pods[why(err)] = true
			continue
		}
		pods[pod] = true
		name := w.who(source)
		if name == from && from != "node" {
			name = "itself"
		}
		seen[name] = true
	}
	return outcome{words(pods), words(seen)}
}

func words(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), " ") }

func why(err error) string {
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

// check asks for the health of a Service at the node, and returns status and weight.
func (w *world) check(port int) (outcome string) {
	stage.Inside(w.hosts["client"].ns, func() {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), uint16(port)).String(), timeout)
		if err != nil {
			outcome = why(err)
			return
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			outcome = why(err)
			return
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			outcome = why(err)
			return
		}
		defer response.Body.Close()
		outcome = fmt.Sprintf("%d, weight %s", response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"))
	})
	return outcome
}
