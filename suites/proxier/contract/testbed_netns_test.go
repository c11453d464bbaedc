//go:build netns

package contract

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/suites/proxier/testnode"
)

// host is a client, a pod, or the node itself.
type host struct {
	name      string
	addrs     []string // IPv4 before IPv6
	nodeAddrs []string // addresses of the node's end of the link; the first of each family is the gateway
	nodeName  string   // node of a pod; empty for a client
	ns        netns.NsHandle
}

// The node's primary addresses are on its link to client. Pod c is a client only; pod r is on another node.
const (
	nodeAddr, nodeAddr6 = "192.0.2.1", "2001:db8::1"
	nodeSecond          = "198.51.100.1"
	zone                = "zone-1"
)

func hosts() []*host {
	return []*host{
		{name: "client", addrs: []string{"192.0.2.2", "2001:db8::2"}, nodeAddrs: []string{nodeAddr, nodeAddr6, nodeSecond}},
		{name: "stranger", addrs: []string{"192.0.3.2", "2001:db8:3::2"}, nodeAddrs: []string{"192.0.3.1", "2001:db8:3::1"}},
		{name: "a", addrs: []string{"10.244.1.1", "fd00:244:0:1::1"}, nodeAddrs: []string{"10.244.1.254", "fd00:244:0:1::fe"}, nodeName: testnode.NodeName},
		{name: "b", addrs: []string{"10.244.2.1", "fd00:244:0:2::1"}, nodeAddrs: []string{"10.244.2.254", "fd00:244:0:2::fe"}, nodeName: testnode.NodeName},
		{name: "c", addrs: []string{"10.244.3.1", "fd00:244:0:3::1"}, nodeAddrs: []string{"10.244.3.254", "fd00:244:0:3::fe"}, nodeName: testnode.NodeName},
		{name: "r", addrs: []string{"10.244.9.1", "fd00:244:0:9::1"}, nodeAddrs: []string{"10.244.9.254", "fd00:244:0:9::fe"}, nodeName: "node-2"},
	}
}

// testbed is a node with clients and pods.
type testbed struct {
	*testnode.Node
	api   *replay.Server
	hosts map[string]*host
	// within is the time limit for a change to take effect.
	within time.Duration
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	w := &testbed{api: replay.New(), hosts: map[string]*host{}}
	this := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testnode.NodeName, Labels: map[string]string{v1.LabelTopologyZone: zone}}}
	for _, a := range []string{nodeAddr, nodeAddr6} {
		this.Status.Addresses = append(this.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	_, err := w.api.Apply(this)
	testnode.Must(t, err)
	w.Node = testnode.New(t, w.api)
	own, err := netns.Get()
	testnode.Must(t, err)
	t.Cleanup(func() { own.Close() })
	for _, h := range hosts() {
		h.ns = w.Neighbour(t, h.name, h.nodeAddrs, h.addrs...)
		w.hosts[h.name] = h
		if h.nodeName != "" {
			testnode.InNetns(h.ns, func() { servePod(t, h) })
		}
	}
	w.hosts["node"] = &host{name: "node", ns: own}
	// Like a real node, it has a default route, so that its own packets to virtual addresses have an output device.
	link, err := netlink.LinkByName("client")
	testnode.Must(t, err)
	testnode.Must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(w.hosts["client"].addrs[0]).AsSlice()}))
	serveHostPort(t)
	return w
}

// nameOf returns the name of the host with an address.
func (w *testbed) nameOf(addr string) string {
	for name, h := range w.hosts {
		if slices.Contains(h.addrs, addr) {
			return name
		}
		if slices.Contains(h.nodeAddrs, addr) {
			return "node"
		}
	}
	return strings.Join([]string{"unknown host", addr}, " ")
}
