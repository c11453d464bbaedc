//go:build netns

package topology

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// In each family every namespace reaches every pod with its first packet: a lost one would look like a loss of the proxy.
func TestFirstPacketsArrive(t *testing.T) {
	home, err := NewNamespace("lab")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var n *Network
	if err := home.Do(func() (err error) { n, err = Create(Config{Nodes: 3, Family: record.DualStack}); return err }); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	first := n.Nodes[0]
	address := netip.MustParseAddr("10.244.1.2")
	pod, err := first.AddPod("pod-1", address)
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	l, err := pod.Listen(t.Context(), "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	waitForLink(t, first.Namespace, netip.AddrPortFrom(address, 8080).String())
	for _, from := range []*Namespace{n.Nodes[1].Namespace, n.Nodes[2].Namespace, first.Namespace, n.Balancer, n.Client, home} {
		for _, a := range first.PodAddrs(address) {
			ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond) // less than until a SYN is sent again
			c, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(a, 8080).String())
			cancel()
			if err != nil {
				t.Errorf("%s to %s: %v", from.Name, a, err)
				continue
			}
			c.Close()
		}
	}
	// The client can bind any of its sources.
	for _, p := range n.Plans() {
		err := n.Client.Do(func() error {
			d := net.Dialer{Timeout: 900 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: record.Nth(p.ClientSources, 77).AsSlice()}}
			to := first.PodAddrs(address)[0]
			if p.Family == record.IPv6 {
				to = first.PodAddrs(address)[1]
			}
			c, err := d.Dial("tcp", netip.AddrPortFrom(to, 8080).String())
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			t.Error(errors.Join(errors.New("from a source of "+string(p.Family)), err))
		}
	}
}

// waitForLink waits until the kernel has told the bridge that a new link is up (linkwatch), as a readiness probe does.
func waitForLink(t *testing.T, from *Namespace, target string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := from.DialContext(ctx, "tcp", target)
		cancel()
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
