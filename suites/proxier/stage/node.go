// Package stage is a node for tests in the lab's kernel: a network namespace of its own, neighbours on wires, an API server that
// tells what there is, and the programs that run there.
package stage

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/replay"
)

// Name is that of the node's Node object.
const Name = "node-1"

// Node is a node. Its namespace is that of the test's thread.
type Node struct {
	API string // where its API server listens, as a URL
	own netns.NsHandle
}

// Must ends the test at an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// New makes a node that forwards, and moves the test's thread there for good: the thread ends with the test.
func New(t *testing.T, plane *replay.Server) *Node {
	t.Helper()
	runtime.LockOSThread()
	n := &Node{own: namespace(t)}
	Up(t, "lo")
	for path, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/icmp_ratelimit": "0", "ipv6/conf/all/forwarding": "1", "ipv6/icmp/ratelimit": "0"} {
		set(t, path, value)
	}
	n.API = serve(t, plane)
	return n
}

// namespace makes one, and moves the thread there. Its addresses of IPv6 can be used at once.
func namespace(t *testing.T) netns.NsHandle {
	t.Helper()
	ns, err := netns.New()
	Must(t, err)
	t.Cleanup(func() { ns.Close() })
	set(t, "ipv4/ip_forward", "0") // it begins as it is in the guest's first namespace
	for _, conf := range []string{"all", "default"} {
		set(t, "ipv6/conf/"+conf+"/accept_dad", "0")
	}
	return ns
}

func set(t *testing.T, path, value string) {
	t.Helper()
	Must(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644))
}

// serve lets an API server listen on the node's loopback until the test ends.
func serve(t *testing.T, plane *replay.Server) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- plane.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	return "http://" + l.Addr().String()
}

// Neighbour makes a namespace that is joined to the node's by a wire with addresses at both ends, and returns it. It sends
// everything to the first address of each family that the node has there.
func (n *Node) Neighbour(t *testing.T, name string, here []string, there ...string) netns.NsHandle {
	t.Helper()
	ns := namespace(t)
	Must(t, netns.Set(n.own))
	Must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
	Up(t, name)
	number(t, name, here)
	Inside(ns, func() {
		Up(t, "lo")
		Up(t, "eth0")
		number(t, "eth0", there)
		routed := map[bool]bool{}
		for _, gateway := range here {
			if six := netip.MustParseAddr(gateway).Is6(); !routed[six] {
				routed[six] = true
				if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return ns
}

// Up brings a device of the thread's namespace up.
func Up(t *testing.T, name string) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Error(err)
	}
}

// number gives a device addresses, each with its network of 256 or of 2^64.
func number(t *testing.T, name string, addrs []string) {
	link, err := netlink.LinkByName(name)
	for _, text := range addrs {
		bits := "/24"
		if netip.MustParseAddr(text).Is6() {
			bits = "/64"
		}
		var addr *netlink.Addr
		if err == nil {
			addr, err = netlink.ParseAddr(text + bits)
		}
		if err == nil {
			addr.Flags = unix.IFA_F_NODAD
			err = netlink.AddrAdd(link, addr)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// Inside runs f to its end on a thread of another namespace, which ends with it.
func Inside(ns netns.NsHandle, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			panic(err)
		}
		f()
	}()
	<-done
}
