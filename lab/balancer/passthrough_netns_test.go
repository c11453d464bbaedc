//go:build netns

package balancer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/hitless/hitless/record"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// picked returns the node that the analysis computes for a new flow.
func picked(source netip.AddrPort, port uint16, nodes string) string {
	list := strings.Split(nodes, ",")
	return list[record.PickNode(source, netip.AddrPortFrom(vip, port), 0xc0ffee, len(list))]
}

// compare opens connections from count sources and compares each node with the computed one.
func (g *testLab) compare(first, count int, nodes string) {
	g.t.Helper()
	seen := map[string]int{}
	for i := first; i < first+count; i++ {
		got, err := g.ask(source(i), 80)
		want := picked(source(i), 80, nodes)
		if err != nil || got != want {
			g.t.Fatalf("the flow from %s was answered by %q (%v); PickNode of %s says %s; tables %q", source(i), got, err, nodes,
				want, g.recorder.eventLines(record.KindMembership, "port", "nodes"))
		}
		seen[got]++
	}
	list := strings.Split(nodes, ",")
	for _, n := range list {
		if seen[n] < count/len(list)/2 {
			g.t.Errorf("%d of %d flows went to %s of %s: the hash is not even", seen[n], count, n, nodes)
		}
	}
}

func TestKernelHashMatchesPickNode(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	g.compare(0, 600, everyNode)
	g.sick[2].Store(true)
	g.awaitNodes("80", "node-1,node-3")
	g.compare(600, 300, "node-1,node-3")
	g.sick[1].Store(true)
	g.awaitNodes("80", "node-3")
	g.compare(900, 20, "node-3")
	g.sick[1].Store(false)
	g.sick[2].Store(false)
	g.awaitNodes("80", everyNode)
	g.compare(1000, 100, everyNode)
}

func TestStickyFlowsKeepTheirNode(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	var flows []*flow
	for i := range 60 {
		f, err := g.open("tcp4", source(i), 80, patience)
		g.must(err)
		defer f.Close()
		flows = append(flows, f)
	}
	g.sick[2].Store(true)
	g.awaitNodes("80", "node-1,node-3")
	moved := 0
	for _, f := range flows {
		was := picked(f.source, 80, everyNode)
		if got, err := f.name(); err != nil || got != was {
			t.Errorf("the flow from %s is answered by %q (%v); it began at %s", f.source, got, err, was)
		}
		if was != picked(f.source, 80, "node-1,node-3") {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no flow would have moved: the test shows nothing")
	}
	for n := 1; n <= 3; n++ {
		g.sick[n].Store(true)
	}
	g.awaitNodes("80", "")
	if got, err := flows[0].name(); err != nil {
		t.Errorf("without healthy nodes an open flow is answered by %q (%v)", got, err)
	}
	if f, err := g.open("tcp4", source(900), 80, 300*time.Millisecond); !isTimeout(err) {
		t.Errorf("without healthy nodes a new connection ended with %v, %v; want a time-out", f, err)
	}
}

// A UDP flow moves when its node is removed, stays on the new node, and does not return.
func TestUDPFlowsMoveWhenTheirNodeIsRemoved(t *testing.T) {
	g := newTestLab(t, Config{}, lb("dns", func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, NodePort: 30053, Protocol: "UDP"})
	}))
	g.awaitNodes("53", everyNode)
	var flows []*flow
	for i := range 30 {
		f, err := g.open("udp4", source(i), 53, patience)
		g.must(err)
		defer f.Close()
		flows = append(flows, f)
	}
	check := func(when string, want func(netip.AddrPort) string) {
		t.Helper()
		for _, f := range flows {
			if got, err := f.name(); err != nil || got != want(f.source) {
				t.Errorf("%s, the flow from %s is answered by %q (%v), want %s", when, f.source, got, err, want(f.source))
			}
		}
	}
	began := func(s netip.AddrPort) string { return picked(s, 53, everyNode) }
	moved := func(s netip.AddrPort) string {
		if was := began(s); was != "node-2" {
			return was
		}
		return picked(s, 53, "node-1,node-3")
	}
	check("at first", began)
	g.sick[2].Store(true)
	g.awaitNodes("53", "node-1,node-3")
	check("after node-2 has left", moved)
	g.sick[2].Store(false)
	g.awaitNodes("53", everyNode)
	check("after node-2 has come back", moved)
}

func TestRehashMovesFlows(t *testing.T) {
	g := newTestLab(t, Config{Flows: FlowsRehash}, lb("web"))
	g.awaitNodes("80", everyNode)
	var staying, moving *flow
	for i := 0; staying == nil || moving == nil; i++ {
		f, err := g.open("tcp4", source(i), 80, patience)
		g.must(err)
		defer f.Close()
		if picked(f.source, 80, everyNode) == picked(f.source, 80, "node-1,node-3") {
			staying = f
		} else {
			moving = f
		}
	}
	g.sick[2].Store(true)
	g.awaitNodes("80", "node-1,node-3")
	if got, err := staying.name(); err != nil {
		t.Errorf("a flow whose hash did not move is answered by %q (%v)", got, err)
	}
	if got, err := moving.name(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a flow whose hash moved is answered by %q (%v), want a reset", got, err)
	}
	g.compare(500, 100, "node-1,node-3")
}

func TestUDPHashMatchesPickNode(t *testing.T) {
	g := newTestLab(t, Config{}, lb("dns", func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, NodePort: 30053, Protocol: "UDP"})
	}))
	g.awaitNodes("53", everyNode)
	for i := range 60 {
		f, err := g.open("udp4", source(i), 53, patience)
		g.must(err)
		got, err := f.name()
		f.Close()
		if want := picked(source(i), 53, everyNode); err != nil || got != want {
			t.Fatalf("the datagram from %s was answered by %q (%v), want %s; tables %q", source(i), got, err, want,
				g.recorder.eventLines(record.KindMembership, "port", "nodes"))
		}
	}
}

// Packets without a node are dropped, and packets that a node sends back do not loop.
func TestPacketsWithoutANodeAreDropped(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	if _, err := g.open("tcp4", source(1), 81, 200*time.Millisecond); !isTimeout(err) {
		t.Errorf("a port that the Service does not have: %v, want a time-out", err)
	}
	node := g.net.Nodes[2]
	g.must(node.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrDel(lo, loopback(vip))
	}))
	for i := 2; ; i++ {
		if picked(source(i), 80, everyNode) == node.Name {
			if _, err := g.open("tcp4", source(i), 80, 200*time.Millisecond); !isTimeout(err) {
				t.Errorf("a node that does not know the external address: %v, want a time-out", err)
			}
			return
		}
	}
}

func TestPortsAndServicesAreAddedAndRemoved(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	svc := lb("web")
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip.String()}}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 443, NodePort: 30443, Protocol: "TCP"}}
	g.patchService(svc)
	g.awaitNodes("443", everyNode)
	if _, err := g.ask(source(1), 443); err != nil {
		t.Errorf("the new port: %v", err)
	}
	if _, err := g.open("tcp4", source(2), 80, 200*time.Millisecond); !isTimeout(err) {
		t.Errorf("the old port: %v, want a time-out", err)
	}
	g.must(g.client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	g.awaitNodes("443", "")
	if _, err := g.open("tcp4", source(3), 443, 200*time.Millisecond); !isTimeout(err) {
		t.Errorf("a deleted Service: %v, want a time-out", err)
	}
	if _, err := g.client.CoreV1().Services("default").Create(t.Context(), lb("again", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = vip.String()
	}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.awaitNodes("80", everyNode)
	g.compare(10, 30, everyNode)
}

// fromNs and At bound a change: a flow from before fromNs follows the old table, one from after At the new table.
func TestMembershipEventsBoundTheChange(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	g.sick[3].Store(true)
	g.awaitNodes("80", "node-1,node-2")
	var last, out record.Event
	inARow := 0
	for _, e := range g.recorder.events {
		switch b := e.Body.(type) {
		case record.HealthCheck:
			if b.Result == record.HealthFail {
				last, inARow = e, b.Count
			}
		case record.Membership:
			out = e
		}
	}
	if inARow != 3 {
		t.Errorf("%d failed checks, want three", inARow)
	}
	if from := *out.Body.(record.Membership).From; from < last.At || from > out.At {
		t.Errorf("the change lies between %s and %s, and the third failed check was at %s", from, out.At, last.At)
	}
}

func TestCloseRemovesEverything(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	g.cancel()
	g.must(<-g.ended)
	if err := g.b.Inject(t.Context(), Fault{ID: "late", Kind: FaultDrop, Target: netip.AddrPortFrom(vip, 80), For: 1}); err == nil {
		t.Error("a fault can be injected after the end")
	}
	g.must(g.net.Balancer.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		if err != nil {
			return err
		}
		rules, err := netlink.RuleList(netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		if len(tables) != 0 || len(rules) != 3 {
			return fmt.Errorf("%d tables and %d rules are left: %v, %v", len(tables), len(rules), tables, rules)
		}
		return nil
	}))
	if _, err := netlink.LinkByName("fabric"); err == nil {
		t.Error("the lab's bridge is in the namespace of the test's program")
	}
}

// While the table changes, every packet goes to one of its nodes; none is answered with ICMP unreachable, which would
// look like a failure of the proxy.
func TestEachPacketHasANodeWhileTheTableChanges(t *testing.T) {
	g := newTestLab(t, Config{Flows: FlowsRehash}, lb("dns", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 53, NodePort: 30053, Protocol: "UDP"}}
	}))
	g.awaitNodes("53", everyNode)
	g.cancel() // from here on the table is the test's
	<-g.ended
	path, err := newPassthrough(g.b.cfg, record.IPv4)
	g.must(err)
	defer path.close()
	both := table{service: "default/dns", addr: vip, ports: []port{{protocol: "UDP", number: 53}}}
	for _, n := range g.net.Nodes {
		both.nodes = append(both.nodes, node{name: n.Name, number: n.Number, addr: n.Addr})
	}
	one := both
	one.nodes = both.nodes[1:]
	g.must(path.set(both))
	flows := []*flow{}
	for i := range 2 {
		f, err := g.open("udp4", source(i), 53, patience)
		g.must(err)
		defer f.Close()
		raw, err := f.Conn.(*net.UDPConn).SyscallConn()
		g.must(err)
		// Without it a datagram socket hears nothing of a network that is unreachable (udp(7)).
		var refusal error
		g.must(raw.Control(func(fd uintptr) { refusal = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVERR, 1) }))
		g.must(refusal)
		flows = append(flows, f)
	}
	var sent, refused atomic.Int64
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for _, f := range flows {
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := fmt.Fprintln(f); errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
					refused.Add(1)
				}
				sent.Add(1)
			}
		})
	}
	const changes = 12_000 // with the nodes in a map, one packet in 1,200 changes had none
	for range changes / 2 {
		g.must(path.set(one))
		g.must(path.set(both))
	}
	close(stop)
	flood.Wait()
	if n := refused.Load(); n > 0 || sent.Load() < changes {
		t.Errorf("%d of %d packets had no node while the table changed %d times", n, sent.Load(), changes)
	}
	// The red twin: a packet with the mark of no node is refused, and the socket hears it.
	none := both
	none.nodes = []node{{name: "none", number: len(g.net.Nodes) + 1, addr: g.net.Nodes[0].Addr}}
	g.must(path.set(none))
	refusal := func() bool {
		_, err := fmt.Fprintln(flows[0])
		return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
	}
	for end := time.Now().Add(10 * time.Second); !refusal(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a packet without a node is not refused, so that none was proves nothing")
		}
	}
}
