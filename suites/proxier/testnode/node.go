// Package testnode provides a node for tests in the lab's kernel: a network namespace, neighbours connected to it, an
// API server, and the programs of the node.
package testnode

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

// NodeName is the name of the Node object.
const NodeName = "node-1"

// Node is a node in the network namespace of the test's thread.
type Node struct {
	API string // URL of its API server
	own netns.NsHandle
}

// Must ends the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// New creates a forwarding node and moves the test's thread to its namespace. The thread ends with the test.
func New(t *testing.T, plane *replay.Server) *Node {
	t.Helper()
	runtime.LockOSThread()
	n := &Node{own: newNetns(t)}
	Up(t, "lo")
	for path, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/icmp_ratelimit": "0", "ipv6/conf/all/forwarding": "1", "ipv6/icmp/ratelimit": "0"} {
		setSysctl(t, path, value)
	}
	n.API = serveAPI(t, plane)
	return n
}

// newNetns creates a network namespace and moves the thread there. Its IPv6 addresses are usable at once.
func newNetns(t *testing.T) netns.NsHandle {
	t.Helper()
	ns, err := netns.New()
	Must(t, err)
	t.Cleanup(func() { ns.Close() })
	setSysctl(t, "ipv4/ip_forward", "0") // inherited from the guest's first namespace
	for _, conf := range []string{"all", "default"} {
		setSysctl(t, "ipv6/conf/"+conf+"/accept_dad", "0")
	}
	return ns
}

func setSysctl(t *testing.T, path, value string) {
	t.Helper()
	Must(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644))
}

// serveAPI serves the API on the node's loopback until the test ends.
func serveAPI(t *testing.T, plane *replay.Server) string {
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

// Neighbour creates a namespace with a link to the node's and addresses at both ends (here is the node's end), and
// returns it. Its default routes use the first address of each family in here.
func (n *Node) Neighbour(t *testing.T, name string, here []string, there ...string) netns.NsHandle {
	t.Helper()
	ns := newNetns(t)
	Must(t, netns.Set(n.own))
	Must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
	Up(t, name)
	addAddrs(t, name, here)
	InNetns(ns, func() {
		Up(t, "lo")
		Up(t, "eth0")
		addAddrs(t, "eth0", there)
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

// Up brings up a device of the thread's namespace.
func Up(t *testing.T, name string) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Error(err)
	}
}

// addAddrs adds addresses to a device, with prefixes of /24 and /64.
func addAddrs(t *testing.T, name string, addrs []string) {
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

// InNetns runs f on a new thread in another namespace, and waits for it.
func InNetns(ns netns.NsHandle, f func()) {
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
