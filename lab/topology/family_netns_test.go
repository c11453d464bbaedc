//go:build netns

package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			c, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(a, 8080).String())
			cancel()
			if err == nil {
				err = errors.Join(firstPacketsArrived(c), c.Close())
			}
			if err != nil {
				t.Errorf("%s to %s: %v", from.Name, a, err)
			}
		}
	}
	// The client can bind any of its sources.
	for _, p := range n.Plans() {
		err := n.Client.Do(func() error {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: record.Nth(p.ClientSources, 77).AsSlice()}}
			to := first.PodAddrs(address)[0]
			if p.Family == record.IPv6 {
				to = first.PodAddrs(address)[1]
			}
			c, err := d.Dial("tcp", netip.AddrPortFrom(to, 8080).String())
			if err != nil {
				return err
			}
			return errors.Join(firstPacketsArrived(c), c.Close())
		})
		if err != nil {
			t.Error(errors.Join(errors.New("from a source of "+string(p.Family)), err))
		}
	}
}

// firstPacketsArrived is an error for a connection that sent a packet again.
func firstPacketsArrived(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) { info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err = errors.Join(err, infoErr); err == nil && info.Total_retrans > 0 {
		err = fmt.Errorf("%d packets were sent again", info.Total_retrans)
	}
	return err
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
