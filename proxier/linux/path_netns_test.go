//go:build netns

package linux

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// testPath is client - node - server, each in a namespace; the test's own is the node.
type testPath struct {
	client, server netns.NsHandle
}

const (
	clientAddr     = "192.0.2.2"
	nodeByClient   = "192.0.2.1"
	nodeByServer   = "198.51.100.1"
	serverAddr     = "198.51.100.2"
	serverPort     = 8080
	successTimeout = 5 * time.Second        // for operations that must succeed; a first SYN may be lost while interfaces come up
	failureTimeout = 300 * time.Millisecond // for operations that must fail
)

func newPath(t *testing.T) testPath {
	t.Helper()
	node := inNamespace(t)
	r := testPath{client: connectNetns(t, node, "client", nodeByClient, clientAddr), server: connectNetns(t, node, "server", nodeByServer, serverAddr)}
	if err := (sysctl{"net/ipv4/ip_forward", "1", "forwarding"}).set("/proc/sys"); err != nil {
		t.Fatal(err)
	}
	go serveSource(openIn(t, r.server, func() (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(serverAddr, fmt.Sprint(serverPort)))
	}))
	return r
}

// serveSource replies to each byte with the client address that the server sees.
func serveSource(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			one := make([]byte, 1)
			for _, err := c.Read(one); err == nil; _, err = c.Read(one) {
				fmt.Fprintln(c, c.RemoteAddr().(*net.TCPAddr).IP)
			}
		}()
	}
}

// inNetns runs f on a thread in another namespace, which ends with f.
func inNetns(t *testing.T, ns netns.NsHandle, f func()) {
	runtime.LockOSThread()
	if err := netns.Set(ns); err != nil {
		t.Error(err)
	}
	f()
}

// openIn opens a socket in a namespace and closes it at the end of the test.
func openIn[S io.Closer](t *testing.T, ns netns.NsHandle, open func() (S, error)) S {
	t.Helper()
	type result struct {
		socket S
		err    error
	}
	opened := make(chan result)
	go inNetns(t, ns, func() {
		s, err := open()
		opened <- result{s, err}
	})
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.socket.Close() })
	return r.socket
}

// connectNetns creates a namespace with one interface, whose peer is in the node's.
func connectNetns(t *testing.T, node netns.NsHandle, name, here, there string) netns.NsHandle {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(netns.Set(node))
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
	check(netlink.LinkAdd(veth))
	addr := func(h *netlink.Handle, link, ip string) {
		l, err := h.LinkByName(link)
		check(err)
		a, err := netlink.ParseAddr(ip + "/24")
		check(err)
		check(h.AddrAdd(l, a))
		check(h.LinkSetUp(l))
	}
	local, err := netlink.NewHandleAt(node, unix.NETLINK_ROUTE)
	check(err)
	defer local.Close()
	peer, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	check(err)
	defer peer.Close()
	addr(local, name, here)
	addr(peer, "eth0", there)
	check(peer.RouteAdd(&netlink.Route{Gw: net.ParseIP(here)}))
	return ns
}

func (r testPath) dial(t *testing.T, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	return r.dialTo(t, netip.AddrPortFrom(netip.MustParseAddr(serverAddr), serverPort), timeout)
}

// dialTo opens a connection from the client.
func (r testPath) dialTo(t *testing.T, target netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	return dialFrom(t, r.client, target, timeout)
}

func dialFrom(t *testing.T, ns netns.NsHandle, target netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result)
	go inNetns(t, ns, func() {
		c, err := net.DialTimeout("tcp", target.String(), timeout)
		done <- result{c, err}
	})
	d := <-done
	if d.c != nil {
		t.Cleanup(func() { d.c.Close() })
	}
	return d.c, d.err
}

// source returns the client address that the server sees.
func source(t *testing.T, c net.Conn) string {
	t.Helper()
	answer := make([]byte, 64)
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte{'?'}); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(answer)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(answer[:n]))
}

// For a virtual address in the clients' network, such as one that a layer 2 load balancer announces, strict ARP
// leaves the ARP reply to the load balancer. Without it the node replies, which is the red twin.
func TestStrictARP(t *testing.T) {
	const announced = "192.0.2.80"
	for _, strict := range []bool{false, true} {
		r := newPath(t)
		openIPVSKernel(t).Close()
		k, err := Open(Options{Scheduler: "rr", StrictARP: strict})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		at := kernel.Key{Addr: netip.MustParseAddr(announced), Protocol: kernel.TCP, Port: 80}
		apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.FromNode, Key: at}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}},
			kernel.AddReal{Key: at, Real: backend, Weight: 1}, kernel.Bind{Addr: at.Addr})
		_, err = r.dialTo(t, netip.AddrPortFrom(at.Addr, at.Port), successTimeout)
		var timeout net.Error
		silent := errors.Is(err, unix.EHOSTUNREACH) || errors.As(err, &timeout) && timeout.Timeout()
		if strict && !silent || !strict && err != nil {
			t.Errorf("strict ARP %v: connecting from the same network: %v", strict, err)
		}
	}
}
