//go:build netns

package topology

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The kernel sends the keepalives of many connections in one go, at both ends, and drops none of them: all links of a lab share one queue
// for each CPU. A queue of the default length drops some.
func TestKeepalivesOfManyConnectionsAreNotDropped(t *testing.T) {
	if !ownKernel {
		t.Skip("runs only in a kernel of the lab's own, whose length of the queue may change: in suites/proxier")
	}
	const setting = "/proc/sys/net/core/netdev_max_backlog"
	own, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(setting, own, 0)
	for _, tt := range []struct {
		length string
		drops  bool
	}{{strings.TrimSpace(string(own)), false}, {"1000", true}} {
		t.Run(tt.length+" packets", func(t *testing.T) {
			if err := os.WriteFile(setting, []byte(tt.length), 0); err != nil {
				t.Fatal(err)
			}
			if dropped := keepalives(t); (dropped > 0) != tt.drops {
				t.Errorf("%d packets dropped, want some: %t", dropped, tt.drops)
			}
		})
	}
}

// keepalives opens connections through the balancer and a node, waits until both ends of each have sent a keepalive, and returns how many
// packets the kernel has dropped meanwhile.
func keepalives(t *testing.T) int {
	const connections = 1000
	n := created(t, Config{Nodes: 1})
	addr := netip.MustParseAddr("10.244.1.2")
	pod, err := n.Nodes[0].AddPod("pod-1", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	listener, err := pod.Listen(t.Context(), "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var ends []*net.TCPConn
	for range connections {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		c, err := n.Client.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, 8080).String())
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		ends = append(ends, c.(*net.TCPConn), other.(*net.TCPConn))
	}
	before := backlogDrops(t)
	for _, c := range ends {
		if err := c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 40 * time.Second, Interval: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); keepalivesOf(t, n.Client) < connections || keepalivesOf(t, pod) < connections; {
		if time.Now().After(deadline) {
			t.Fatal("the connections have sent no keepalives")
		}
		time.Sleep(100 * time.Millisecond) // until the counters are read again
	}
	return backlogDrops(t) - before
}

// backlogDrops is the number of packets that found the queue of their CPU full (net/core/net-procfs.c, softnet_seq_show).
func backlogDrops(t *testing.T) (n int) {
	t.Helper()
	data, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		dropped, err := strconv.ParseInt(strings.Fields(line)[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += int(dropped)
	}
	return n
}

// keepalivesOf is the number of keepalives that a namespace has sent.
func keepalivesOf(t *testing.T, ns *Namespace) (n int) {
	t.Helper()
	err := ns.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := strings.Split(string(data), "\n")
		for i, name := range strings.Fields(lines[0]) {
			if name == "TCPKeepAlive" {
				n, err = strconv.Atoi(strings.Fields(lines[1])[i])
				return err
			}
		}
		return fmt.Errorf("the kernel does not count keepalives")
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
