//go:build netns

package probes

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// testNamespace is a network namespace that exists until the end of its test.
type testNamespace struct {
	name   string
	handle netns.NsHandle
}

func newTestNamespace(t testing.TB, name string) *testNamespace {
	t.Helper()
	s := &testNamespace{name: name}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		var err error
		s.handle, err = netns.New()
		if err == nil {
			err = up("lo")
		}
		if err == nil { // otherwise link-local addresses are unusable for up to two seconds, and neighbours are not found
			err = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("creating namespace %s: %v (run as root or with `unshare -rnm`)", name, err)
	}
	t.Cleanup(func() { s.handle.Close() })
	return s
}

// do runs f in the namespace.
func (s *testNamespace) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(s.handle)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("in namespace %s: %w", s.name, err)
	}
	return nil
}

func (s *testNamespace) must(t testing.TB, f func() error) {
	t.Helper()
	if err := s.do(f); err != nil {
		t.Fatal(err)
	}
}

func (s *testNamespace) sysctl(t testing.TB, name, value string) {
	t.Helper()
	s.must(t, func() error {
		return os.WriteFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")), []byte(value), 0)
	})
}

// nft replaces the table `ip test` of the namespace.
func (s *testNamespace) nft(t testing.TB, body string) { t.Helper(); s.nftables(t, "ip", body) }

// nft6 replaces the table `ip6 test`.
func (s *testNamespace) nft6(t testing.TB, body string) { t.Helper(); s.nftables(t, "ip6", body) }

func (s *testNamespace) nftables(t testing.TB, family, body string) {
	t.Helper()
	s.must(t, func() error {
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(strings.ReplaceAll("table F test {}\ndelete table F test\ntable F test {\n", "F", family) + body + "\n}\n")
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s (install the package nftables)", err, out)
		}
		return nil
	})
}

// prepare brings up loopback, which is down in a new namespace of `unshare -rnm`.
func prepare() error { return up("lo") }

func up(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// connect creates a veth pair between two namespaces. Each end has the other's name and the given address.
func connect(t testing.TB, a *testNamespace, addressA string, b *testNamespace, addressB string) {
	t.Helper()
	a.must(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = b.name
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: a.name, PeerNamespace: netlink.NsFd(int(b.handle))})
	})
	for _, end := range []struct {
		s             *testNamespace
		link, address string
	}{{a, b.name, addressA}, {b, a.name, addressB}} {
		end.s.must(t, func() error {
			l, err := netlink.LinkByName(end.link)
			if err != nil {
				return err
			}
			if err := addAddress(l, end.address); err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
}

// addAddress gives a link an address that is usable at once: for IPv6 without duplicate address detection (RFC 4862, 5.4).
func addAddress(l netlink.Link, text string) error {
	address, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	if address.IP.To4() == nil {
		address.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(l, address)
}

func (s *testNamespace) address(t testing.TB, link, text string) {
	t.Helper()
	s.must(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		return addAddress(l, text)
	})
}

// route adds a route: via an address, or local to the device lo without one.
func (s *testNamespace) route(t testing.TB, destination, via string) {
	t.Helper()
	s.must(t, func() error {
		r := &netlink.Route{Dst: prefixNet(destination), Gw: net.ParseIP(via)}
		if via == "" {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			r.LinkIndex, r.Type, r.Scope, r.Table = lo.Attrs().Index, 2 /* RTN_LOCAL */, netlink.SCOPE_HOST, 255
		}
		return netlink.RouteAdd(r)
	})
}

func prefixNet(text string) *net.IPNet {
	p := netip.MustParsePrefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// network connects client, router and backend. The router translates the external address 203.0.113.10:80 to the backend's
// 10.0.0.11:8080. The client probes from 10.200.0.0/16.
type network struct{ client, router, backend *testNamespace }

const (
	vip        = "203.0.113.10:80"
	routerSide = "198.51.100.1"
	translate  = "chain nat { type nat hook prerouting priority dstnat; " +
		"ip daddr 203.0.113.10 tcp dport 80 dnat to 10.0.0.11:8080; ip daddr 203.0.113.10 udp dport 80 dnat to 10.0.0.11:8080; }\n"

	// The same in IPv6, where the client has one address only.
	vip6        = "[2001:db8:113::10]:80"
	routerSide6 = "2001:db8:51::1"
	backend6    = "2001:db8:a::11"
	translate6  = "chain nat { type nat hook prerouting priority dstnat; ip6 daddr 2001:db8:113::10 tcp dport 80 dnat to [2001:db8:a::11]:8080; " +
		"ip6 daddr 2001:db8:113::10 udp dport 80 dnat to [2001:db8:a::11]:8080; }\n"
)

func newNetwork(t testing.TB) *network {
	t.Helper()
	w := &network{client: newTestNamespace(t, "client"), router: newTestNamespace(t, "router"), backend: newTestNamespace(t, "backend")}
	connect(t, w.client, "198.51.100.2/24", w.router, routerSide+"/24")
	connect(t, w.router, "10.0.0.1/24", w.backend, "10.0.0.11/24")
	w.client.route(t, "0.0.0.0/0", routerSide)
	w.client.route(t, "10.200.0.0/16", "")
	w.router.route(t, "10.200.0.0/16", "198.51.100.2")
	w.router.route(t, "203.0.113.0/24", "10.0.0.11") // for untranslated packets, so that they reach the forward hook
	w.backend.route(t, "0.0.0.0/0", "10.0.0.1")
	w.router.sysctl(t, "net.ipv4.ip_forward", "1")
	w.router.sysctl(t, "net.ipv4.icmp_ratelimit", "0") // otherwise some rejects have no answer
	w.router.nft(t, translate)
	w.client.awaitLink(t, "router")
	w.router.awaitLink(t, "client")
	w.router.awaitLink(t, "backend")
	w.backend.awaitLink(t, "router")
	return w
}

// addIPv6 adds IPv6 to the network.
func (w *network) addIPv6(t testing.TB) {
	t.Helper()
	w.client.address(t, "router", "2001:db8:51::2/64")
	w.router.address(t, "client", routerSide6+"/64")
	w.router.address(t, "backend", "2001:db8:a::1/64")
	w.backend.address(t, "router", backend6+"/64")
	w.client.route(t, "::/0", routerSide6)
	w.router.route(t, "2001:db8:113::/48", backend6)
	w.backend.route(t, "::/0", "2001:db8:a::1")
	w.router.sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	w.router.sysctl(t, "net.ipv6.icmp.ratelimit", "0")
	w.backend.sysctl(t, "net.ipv6.icmp.ratelimit", "0")
	w.router.nft6(t, translate6)
}

// awaitLink waits until a link forwards packets. The kernel detects a new carrier up to a second late (link_watch.c), and drops all
// packets until then.
func (s *testNamespace) awaitLink(t testing.TB, name string) {
	t.Helper()
	s.must(t, func() error {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if l.Attrs().OperState == netlink.OperUp {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("link %s is %v after 5 s", name, l.Attrs().OperState)
			}
		}
	})
}

// serve listens in the backend's namespace.
func (w *network) serve(t testing.TB, run func(net.Listener)) {
	t.Helper()
	w.serveOn(t, "10.0.0.11:8080", run)
}

// serveDatagrams answers UDP in the backend's namespace, with both families of the network.
func (w *network) serveDatagrams(t testing.TB, address string, answer func(number string, say func(string))) {
	t.Helper()
	w.backend.must(t, func() error {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		go serveDatagrams(conn, answer)
		return nil
	})
}

func (w *network) serveOn(t testing.TB, address string, run func(net.Listener)) {
	t.Helper()
	w.backend.must(t, func() error {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { listener.Close() })
		go run(listener)
		return nil
	})
}
