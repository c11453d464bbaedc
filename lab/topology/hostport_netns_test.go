//go:build netns

package topology

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A port of a node leads to its pod from another node, from the node itself, from its loopback and from the pod, until it is removed.
func TestHostPorts(t *testing.T) {
	n := created(t, Config{Nodes: 2})
	node, own := n.Nodes[0], netip.MustParseAddr("10.244.1.2")
	pod, err := node.AddPod("pod-1", own)
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	serveHere(t, pod)
	waitForLink(t, node.Namespace, netip.AddrPortFrom(own, 8080).String())
	to := netip.AddrPortFrom(own, 8080)
	loopback := netip.MustParseAddr("127.0.0.1")
	if err := node.AddHostPorts(HostPort{Protocol: unix.IPPROTO_TCP, Port: 81, To: to},
		HostPort{Addr: loopback, Protocol: unix.IPPROTO_TCP, Port: 82, To: to}); err != nil {
		t.Fatal(err)
	}
	check := func(from *Namespace, address netip.Addr, port, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var got []byte
		c, err := from.DialContext(ctx, "tcp", net.JoinHostPort(address.String(), port))
		if err == nil {
			got, err = io.ReadAll(c)
			c.Close()
		}
		if string(got) != want {
			t.Errorf("from %s to port %s of %s: %q, %v; want %q", from.Name, port, address, got, err, want)
		}
	}
	other := n.Nodes[1].Namespace
	check(other, node.Addr, "81", "here")
	check(node.Namespace, node.Addr, "81", "here")
	check(node.Namespace, loopback, "81", "here")
	check(pod, node.Addr, "81", "here")
	check(node.Namespace, loopback, "82", "here")
	check(node.Namespace, node.Addr, "82", "")
	check(other, n.Nodes[1].Addr, "81", "")
	if err := node.RemoveHostPorts(own); err != nil {
		t.Fatal(err)
	}
	check(other, node.Addr, "81", "")
	check(node.Namespace, loopback, "82", "")
}

// serveHere answers each connection to port 8080 of a pod with "here", until the test ends.
func serveHere(t *testing.T, pod *Namespace) {
	t.Helper()
	l, err := pod.Listen(t.Context(), "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here")
			c.Close()
		}
	}()
}
