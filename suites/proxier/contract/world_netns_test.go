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
	"github.com/hitless/hitless/suites/proxier/stage"
)

// host is somebody with addresses: a client, a pod, or the node towards it.
type host struct {
	name  string
	addrs []string // of IPv4 first
	node  []string // what the node has at the other end of the wire; the first of each family is the gateway
	on    string   // the node that it is a pod of; empty for a client
	ns    netns.NsHandle
}

// The node's primary addresses are those towards the clients. Pod c asks and serves nobody; pod r is on another node.
const (
	nodeAddr, nodeAddr6 = "192.0.2.1", "2001:db8::1"
	nodeSecond          = "198.51.100.1"
	zone                = "zone-1"
)

func hosts() []*host {
	return []*host{
		{name: "client", addrs: []string{"192.0.2.2", "2001:db8::2"}, node: []string{nodeAddr, nodeAddr6, nodeSecond}},
		{name: "stranger", addrs: []string{"192.0.3.2", "2001:db8:3::2"}, node: []string{"192.0.3.1", "2001:db8:3::1"}},
		{name: "a", addrs: []string{"10.244.1.1", "fd00:244:0:1::1"}, node: []string{"10.244.1.254", "fd00:244:0:1::fe"}, on: stage.Name},
		{name: "b", addrs: []string{"10.244.2.1", "fd00:244:0:2::1"}, node: []string{"10.244.2.254", "fd00:244:0:2::fe"}, on: stage.Name},
		{name: "c", addrs: []string{"10.244.3.1", "fd00:244:0:3::1"}, node: []string{"10.244.3.254", "fd00:244:0:3::fe"}, on: stage.Name},
		{name: "r", addrs: []string{"10.244.9.1", "fd00:244:0:9::1"}, node: []string{"10.244.9.254", "fd00:244:0:9::fe"}, on: "node-2"},
	}
}

// world is a node with clients and pods around it.
type world struct {
	*stage.Node
	plane *replay.Server
	hosts map[string]*host
	// within is how long the proxy may take to follow a change.
	within time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{plane: replay.New(), hosts: map[string]*host{}}
	this := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: stage.Name, Labels: map[string]string{v1.LabelTopologyZone: zone}}}
	for _, a := range []string{nodeAddr, nodeAddr6} {
		this.Status.Addresses = append(this.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	_, err := w.plane.Apply(this)
	stage.Must(t, err)
	w.Node = stage.New(t, w.plane)
	own, err := netns.Get()
	stage.Must(t, err)
	t.Cleanup(func() { own.Close() })
	for _, h := range hosts() {
		h.ns = w.Neighbour(t, h.name, h.node, h.addrs...)
		w.hosts[h.name] = h
		if h.on != "" {
			stage.Inside(h.ns, func() { serve(t, h) })
		}
	}
	w.hosts["node"] = &host{name: "node", ns: own}
	// A real node has a way to everywhere, so that its own packets to virtual addresses leave towards somebody.
	link, err := netlink.LinkByName("client")
	stage.Must(t, err)
	stage.Must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(w.hosts["client"].addrs[0]).AsSlice()}))
	program(t)
	return w
}

// who says whose an address is, as the one who answers sees it.
func (w *world) who(addr string) string {
	for name, h := range w.hosts {
		if slices.Contains(h.addrs, addr) {
			return name
		}
		if slices.Contains(h.node, addr) {
			return "node"
		}
	}
	return strings.Join([]string{"somebody at", addr}, " ")
}
