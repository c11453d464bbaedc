//go:build netns

package balancer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// vip is the first address that the balancer gives out.
var vip = netip.MustParseAddr("203.0.113.10")

// healthPort is the Service's healthCheckNodePort.
const healthPort = 31000

// testLab is the lab's network in its own namespaces, with a balancer and a fake API server. Each node serves health
// checks on its address and its name on the external address.
type testLab struct {
	t        *testing.T
	net      *topology.Network
	client   *fake.Clientset
	recorder *fakeRecorder
	b        *Balancer
	start    time.Time
	sick     [4]atomic.Bool // by number of the node: answers 503
	cancel   func()
	ended    chan error
}

func newTestLab(t *testing.T, cfg Config, objects ...runtime.Object) *testLab {
	t.Helper()
	home, err := topology.NewNamespace("lab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { home.Close() })
	g := &testLab{t: t, client: fake.NewClientset(append(nodeObjects(3), objects...)...), recorder: &fakeRecorder{}, start: time.Now(),
		ended: make(chan error, 1)}
	g.must(home.Do(func() (err error) { g.net, err = topology.New(3); return err }))
	t.Cleanup(g.net.Close)
	for _, n := range g.net.Nodes {
		g.startServers(n)
	}
	cfg.Net, cfg.Client, cfg.Recorder, cfg.Now = g.net, g.client, g.recorder, func() time.Duration { return time.Since(g.start) }
	cfg.Seed, cfg.Log = 0xc0ffee, slog.New(slog.DiscardHandler)
	cfg.Interval = or(cfg.Interval, 300*time.Millisecond)
	g.b, err = New(cfg)
	g.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() { g.ended <- g.b.Run(ctx); close(g.ended) }()
	t.Cleanup(func() { cancel(); <-g.ended })
	return g
}

func (g *testLab) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// startServers adds the external address to the node's lo and starts the node's servers.
func (g *testLab) startServers(n *topology.Node) {
	g.must(n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, loopback(vip))
	}))
	g.serveName(n, "0.0.0.0:80")
	g.serveName(n, "0.0.0.0:443")
	g.serveName(n, "0.0.0.0:30080")
	g.serveName(n, "0.0.0.0:30443")
	g.serveUDP(n, 53)
	health, err := n.Listen(context.Background(), "tcp4", fmt.Sprintf("%s:%d", n.Addr, healthPort))
	g.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if g.sick[n.Number].Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go server.Serve(health)
	g.t.Cleanup(func() { server.Close() })
}

// serveName answers every line with the node's name.
func (g *testLab) serveName(n *topology.Node, address string) {
	l, err := n.Listen(context.Background(), "tcp4", address)
	g.must(err)
	g.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, n.Name)
				}
			}()
		}
	}()
}

func (g *testLab) serveUDP(n *topology.Node, port uint16) {
	var conn net.PacketConn
	g.must(n.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", netip.AddrPortFrom(vip, port).String())
		return err
	}))
	g.t.Cleanup(func() { conn.Close() })
	go func() {
		for buf := make([]byte, 100); ; {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo([]byte(n.Name+"\n"), from)
		}
	}()
}

// flow is an open connection from a client.
type flow struct {
	net.Conn
	source netip.AddrPort
	lines  *bufio.Reader
}

// open opens a connection from a source of the client's range to the external address.
func (g *testLab) open(network string, source netip.AddrPort, port uint16, deadline time.Duration) (*flow, error) {
	var conn net.Conn
	err := g.net.Client.Do(func() (err error) {
		d := net.Dialer{Timeout: deadline, LocalAddr: net.TCPAddrFromAddrPort(source)}
		if network == "udp4" {
			d.LocalAddr = net.UDPAddrFromAddrPort(source)
		}
		conn, err = d.Dial(network, netip.AddrPortFrom(vip, port).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &flow{Conn: conn, source: source, lines: bufio.NewReader(conn)}, nil
}

// patience is the deadline of what must succeed, on a busy machine too.
const patience = 10 * time.Second

// name asks for the name of the node.
func (f *flow) name() (string, error) { return f.nameWithin(patience) }

// nameWithin is name with a deadline, for a flow that may get no answer.
func (f *flow) nameWithin(deadline time.Duration) (string, error) {
	f.SetDeadline(time.Now().Add(deadline))
	if _, err := fmt.Fprintln(f); err != nil {
		return "", err
	}
	line, err := f.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask opens a connection, asks for the name of the node, and closes.
func (g *testLab) ask(source netip.AddrPort, port uint16) (string, error) {
	return g.askWithin(source, port, patience)
}

// askWithin is ask with a deadline for the connection and one for its answer, for a client that may get none.
func (g *testLab) askWithin(source netip.AddrPort, port uint16, deadline time.Duration) (string, error) {
	f, err := g.open("tcp4", source, port, deadline)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.nameWithin(deadline)
}

// source returns the i-th client address and port.
func source(i int) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 200, byte(i * 7), byte(1 + i%250)})
	return netip.AddrPortFrom(addr, uint16(2000+i*37%60000))
}

// await waits until the condition holds, for 10 s at most.
func (g *testLab) await(what string, holds func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		select {
		case err := <-g.ended:
			g.t.Fatalf("the balancer ended while %s was awaited: %v", what, err)
		default:
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%s: not within 10 s; tables so far:\n%s", what,
				strings.Join(g.recorder.eventLines(record.KindMembership, "port", "nodes", "all"), "\n"))
		}
	}
}

// awaitNodes waits until the recorded membership of the port is exactly these nodes.
func (g *testLab) awaitNodes(port string, nodes string) {
	g.t.Helper()
	g.await("nodes "+nodes, func() bool {
		g.recorder.mu.Lock()
		defer g.recorder.mu.Unlock()
		last := "none"
		for _, e := range g.recorder.events {
			if b, is := e.Body.(record.Membership); is && strconv.Itoa(int(b.Port)) == port {
				last = strings.Join(b.Nodes, ",")
			}
		}
		return last == nodes
	})
}

func (g *testLab) patchService(svc *corev1.Service) {
	g.t.Helper()
	if _, err := g.client.CoreV1().Services("default").Update(g.t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

const everyNode = "node-1,node-2,node-3"
