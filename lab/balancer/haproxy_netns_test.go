//go:build netns

package balancer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newHAProxyLab(t *testing.T) *testLab {
	t.Helper()
	const path = "/usr/sbin/haproxy"
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("HAProxy is not installed (package haproxy): %v", err)
	}
	supervisor, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { supervisor.StopAll(time.Second) })
	g := newTestLab(t, Config{Kind: KindHAProxy, HAProxy: path, Procs: supervisor}, lb("web"))
	g.awaitNodes("80", everyNode)
	return g
}

// answers counts new connections by the node that answers.
func (g *testLab) answers(first, count int, port uint16) map[string]int {
	g.t.Helper()
	seen := map[string]int{}
	for i := first; i < first+count; i++ {
		got, err := g.ask(source(i), port)
		if err != nil {
			g.t.Fatalf("connection from %s: %v", source(i), err)
		}
		seen[got]++
	}
	return seen
}

func TestHAProxyFollowsHealth(t *testing.T) {
	g := newHAProxyLab(t)
	if got := g.answers(0, 30, 80); fmt.Sprint(got) != "map[node-1:10 node-2:10 node-3:10]" {
		t.Errorf("30 connections were answered by %v, want each node alike", got)
	}
	g.await("a first pass of each check", func() bool {
		return len(g.recorder.eventLines(record.KindHealthCheck, "result")) == 3
	})
	g.recorder.reset()
	g.sick[2].Store(true)
	g.awaitNodes("80", "node-1,node-3")
	if got := g.answers(100, 20, 80); got["node-2"] != 0 {
		t.Errorf("node-2 is out and answers: %v", got)
	}
	health := g.recorder.eventLines(record.KindHealthCheck, "result", "status", "target", "count")
	words := []string{}
	for _, line := range health {
		_, rest, _ := strings.Cut(line, " ")
		words = append(words, rest)
	}
	if want := []string{"fail 503 healthCheckNodePort 1", "fail 503 healthCheckNodePort 3"}; !slices.Equal(words, want) {
		t.Errorf("the history has the checks %q, want %q", words, want)
	}
	for n := 1; n <= 3; n++ {
		g.sick[n].Store(true)
	}
	g.awaitNodes("80", "")
	if _, err := g.askWithin(source(200), 80, time.Second); err == nil {
		t.Error("without a healthy node a connection is answered")
	}
	g.sick[1].Store(false)
	g.awaitNodes("80", "node-1")
	// HAProxy says so just before it does so (srv_update_status() logs first).
	next := 300
	g.await("an answer from the node that is back", func() bool { next++; _, err := g.askWithin(source(next), 80, time.Second); return err == nil })
	g.answers(400, 5, 80)
}

func TestHAProxyReloadsAChangedConfiguration(t *testing.T) {
	g := newHAProxyLab(t)
	open, err := g.open("tcp4", source(0), 80, patience)
	g.must(err)
	defer open.Close()
	was, err := open.name()
	g.must(err)
	svc := lb("web")
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip.String()}}
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: 443, NodePort: 30443, Protocol: "TCP"})
	g.patchService(svc)
	g.awaitNodes("443", everyNode)
	g.answers(10, 6, 443)
	g.answers(20, 6, 80)
	if got, err := open.name(); err != nil || got != was {
		t.Errorf("the connection that was open is answered by %q (%v), was %s", got, err, was)
	}
	g.must(g.client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	g.awaitNodes("443", "")
	if _, err := open.nameWithin(time.Second); err == nil {
		t.Error("the connection outlives its Service")
	}
}

// A reload drops no connection, and the membership event says that the balancer was reloaded.
func TestHAProxyReloadsDropNoConnection(t *testing.T) {
	g := newHAProxyLab(t)
	var workers sync.WaitGroup
	stop := make(chan struct{})
	asked := make([]int, 4)
	for w := range asked {
		workers.Go(func() {
			for ; ; asked[w]++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := g.ask(source(1000+w*20000+asked[w]%20000), 80); err != nil {
					t.Errorf("%v: %v", time.Since(g.start), err)
				}
			}
		})
	}
	const reloads = 10
	for i := range reloads {
		svc, want := lb("web"), ""
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip.String()}}
		if i%2 == 0 {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: 443, NodePort: 30443, Protocol: "TCP"})
			want = everyNode
		}
		g.patchService(svc)
		g.awaitNodes("443", want)
	}
	close(stop)
	workers.Wait()
	if total := asked[0] + asked[1] + asked[2] + asked[3]; total < 100 {
		t.Errorf("only %d connections met %d reloads", total, reloads)
	}
	again := 0
	for _, line := range g.recorder.eventLines(record.KindMembership, "port", "nodes", "reloaded") {
		if strings.HasSuffix(line, " 80 "+everyNode+" true") {
			again++
		}
	}
	if again != reloads {
		t.Errorf("the history has %d new starts of %d", again, reloads)
	}
}

// disconnect removes a node from the network.
func (g *testLab) disconnect(name string) {
	g.t.Helper()
	i := slices.IndexFunc(g.net.Nodes, func(n *topology.Node) bool { return n.Name == name })
	g.must(g.net.Nodes[i].Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	}))
}

// Each connection is recorded with its node and time, also one without data and one whose node does not respond.
func TestHAProxyFlowsAreRecorded(t *testing.T) {
	g := newHAProxyLab(t)
	type visit struct {
		node string
		at   time.Duration
	}
	made := map[netip.AddrPort]visit{}
	for i := range 300 {
		at := time.Since(g.start)
		got, err := g.ask(source(i), 80)
		g.must(err)
		made[source(i)] = visit{got, at}
	}
	g.disconnect("node-2")
	for i := 300; i < 303; i++ { // one for each node
		at := time.Since(g.start)
		conn, err := g.open("tcp4", source(i), 80, patience)
		g.must(err)
		got, err := conn.nameWithin(4 * time.Second) // HAProxy itself gives up after 5 s
		if isTimeout(err) {
			got = "node-2"
			g.must(conn.Conn.(*net.TCPConn).SetLinger(0)) // as a probe gives up
		}
		made[source(i)] = visit{got, at}
		conn.Close()
	}
	next := 1000
	g.await("what is told of the silent connection", func() bool {
		g.askWithin(source(next), 80, time.Second)
		next++
		return strings.Contains(strings.Join(g.recorder.eventLines(record.KindFlows, "flows"), "\n"), source(302).String())
	})
	g.cancel()
	g.must(<-g.ended)
	for _, line := range g.recorder.eventLines(record.KindFlows, "flows") {
		for _, text := range strings.Fields(line)[1:] {
			word := strings.Split(text, "/")
			source, ns := netip.MustParseAddrPort(word[0]), word[2]
			was, known := made[source]
			if !known {
				continue
			}
			delete(made, source)
			at, err := strconv.ParseInt(ns, 10, 64)
			g.must(err)
			// Without the time that the silent connection lasted, it would be 4 s late. A log may be read late.
			if off := time.Duration(at) - was.at; word[1] != was.node || off < -5*time.Millisecond || off > 3*time.Second {
				t.Errorf("%s went to %s at %v; the history says %s, %v later", source, was.node, was.at, word[1], off)
			}
		}
	}
	if len(made) > 0 {
		t.Errorf("nothing is told of %v", made)
	}
}

func TestHAProxyFaultsAndEnd(t *testing.T) {
	g := newHAProxyLab(t)
	target := netip.AddrPortFrom(vip, 80)
	end := g.injectUntil(Fault{ID: "d", Kind: FaultDrop, Target: target})
	if _, err := g.open("tcp4", source(1), 80, 100*time.Millisecond); !isTimeout(err) {
		t.Errorf("a new connection in a drop: %v, want a time-out", err)
	}
	end()
	g.answers(2, 1, 80)
	if err := g.b.Inject(t.Context(), Fault{ID: "n", Kind: FaultDrop, Target: target, For: 1, Node: "node-1"}); err == nil {
		t.Error("a fault for one node is taken, though HAProxy chooses the node later")
	}
	g.cancel()
	g.must(<-g.ended)
	g.must(g.net.Balancer.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(lo, netlink.FAMILY_V4)
		if err == nil && len(addrs) != 1 {
			err = fmt.Errorf("addresses are left behind: %v", addrs)
		}
		return err
	}))
}

func TestHAProxyExitEndsTheBalancer(t *testing.T) {
	g := newHAProxyLab(t)
	for _, s := range g.b.path.(*haproxy).serving {
		g.must(s.current.Signal(syscall.SIGKILL))
	}
	select {
	case err := <-g.ended:
		if err == nil || !strings.Contains(err.Error(), "HAProxy of default/web has ended") {
			t.Errorf("Run returned %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the balancer goes on")
	}
}
