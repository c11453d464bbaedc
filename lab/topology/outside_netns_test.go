//go:build netns

package topology

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// A namespace that is linked to the client's connects to a node. The node sees the client's address.
func TestAnOutsideIsTheClient(t *testing.T) {
	var outside *Namespace
	n := created(t, Config{Nodes: 1})
	node := n.Nodes[0]
	l, err := node.Listen(t.Context(), "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan netip.Addr, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			c.Close()
		}
	}()
	home, err := NewNamespace("a VM")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if outside, err = NewNamespace("outside"); err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	if err := home.Do(func() error { return connect("device", "lab", outside) }); err != nil {
		t.Fatal(err)
	}
	if err := outside.Do(func() error { return netlinkUp("lab", Outside) }); err != nil {
		t.Fatal(err)
	}
	dial := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := outside.DialContext(ctx, "tcp", netip.AddrPortFrom(node.Addr, 8080).String())
		if err == nil {
			c.Close()
		}
		return err
	}
	if dial() == nil {
		t.Error("a namespace without a connection reaches the node")
	}
	if err := home.Do(func() error { return n.ConnectOutside("device") }); err != nil {
		t.Fatal(err)
	}
	if err := outside.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: OutsideGateway.Addr().AsSlice()})
	}); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err != nil {
		t.Fatal(err)
	}
	if from := <-seen; from != ClientAddr {
		t.Errorf("the node sees %s, want the client's %s", from, ClientAddr)
	}
	if err := home.Do(func() error { return n.ConnectOutside("device") }); err == nil {
		t.Error("a link that is gone is connected")
	}
}
