//go:build netns

// Package migration tests the migration of a node from an unmodified kube-proxy to the bundled proxier and back under
// traffic. It runs in the lab's kernel: go test -tags lab ./suites/proxier
package migration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/suites/proxier/testnode"
)

const (
	nodeAddr    = "192.0.2.1"
	clientAddr  = "192.0.2.2"
	gatewayAddr = "10.244.1.254"
	clusterIP   = "10.96.0.10"
	externalIP  = "203.0.113.10"
)

var podAddrs = []string{"10.244.1.1", "10.244.1.2"}

// testbed is a node with a client on one side and pods on the other, each in a namespace.
type testbed struct {
	*testnode.Node
	client netns.NsHandle
}

func newTestbed(t *testing.T) testbed {
	t.Helper()
	n := testnode.New(t, newAPI(t))
	client := n.Neighbour(t, "client", []string{nodeAddr}, clientAddr)
	pods := n.Neighbour(t, "pods", []string{gatewayAddr}, podAddrs...)
	testnode.InNetns(pods, func() {
		l, err := net.Listen("tcp4", ":8080")
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		go echo(l)
	})
	return testbed{n, client}
}

// echo returns what it receives.
func echo(l net.Listener) {
	for c, err := l.Accept(); err == nil; c, err = l.Accept() {
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// newAPI returns an API server with one LoadBalancer Service of two pods, and the Node.
func newAPI(t *testing.T) *replay.Server {
	t.Helper()
	plane := replay.New()
	name, port, yes, where := "http", int32(8080), true, testnode.NodeName
	about := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	svc := &v1.Service{ObjectMeta: about, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
		IPFamilies: []v1.IPFamily{v1.IPv4Protocol}, Ports: []v1.ServicePort{{Name: name, Port: 80, NodePort: 30080, Protocol: v1.ProtocolTCP}}}}
	svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: externalIP}}
	slice := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discovery.LabelServiceName: "web"}},
		AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &name, Port: &port}}}
	for _, pod := range podAddrs {
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{Addresses: []string{pod}, NodeName: &where, Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes}})
	}
	this := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testnode.NodeName}}
	this.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: nodeAddr}}
	_, err := plane.Apply(svc)
	testnode.Must(t, err)
	_, err = plane.Apply(slice)
	testnode.Must(t, err)
	_, err = plane.Apply(this)
	testnode.Must(t, err)
	return plane
}

func (c testbed) migrate(args ...string) (string, error) {
	out, err := exec.Command("/usr/bin/hitless", append([]string{"proxier", "migrate"}, c.Args(args...)...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out) + string(exit.Stderr), err
	}
	return string(out), err
}

// echoOnce sends a byte and waits for its echo.
func echoOnce(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// traffic consists of held connections, and continuously opened new ones, to each target.
type traffic struct {
	held     []net.Conn
	attempts atomic.Int64
	failed   chan string
	stop     chan struct{}
	ended    chan struct{}
}

var targets = []string{clusterIP + ":80", externalIP + ":80", nodeAddr + ":30080"}

func (c testbed) startTraffic(t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{failed: make(chan string, 1000), stop: make(chan struct{}), ended: make(chan struct{})}
	tr.held = c.hold(t, heldPort)
	go testnode.InNetns(c.client, func() {
		defer close(tr.ended)
		for i := 0; ; i++ {
			select {
			case <-tr.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			tr.attempt(newPort+i%newPorts, targets[i%len(targets)])
		}
	})
	return tr
}

// hold opens eight connections from separate ports.
func (c testbed) hold(t *testing.T, port int) (held []net.Conn) {
	t.Helper()
	for i := range 8 {
		testnode.InNetns(c.client, func() {
			conn, err := dial(port+i, targets[i%len(targets)])
			if err == nil {
				err = echoOnce(conn)
			}
			if err != nil {
				t.Errorf("connection %d to hold: %v", i, err)
				return
			}
			held = append(held, conn)
		})
	}
	return held
}

// Each connection has its own source port, below Linux's ephemeral range. IPVS identifies replies by the client's
// address and port alone, so two connections from one port to different virtual addresses, as Linux allows them,
// would conflict.
const (
	heldPort, newPort = 15000, 16000
	newPorts          = 16000
)

func dial(from int, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddr), Port: from}}
	return d.Dial("tcp", to)
}

func (tr *traffic) attempt(from int, target string) {
	tr.attempts.Add(1)
	conn, err := dial(from, target)
	if err == nil {
		err = echoOnce(conn)
		conn.Close()
	}
	if err != nil {
		tr.failed <- fmt.Sprintf("%s: %v", target, err)
	}
}

// losses returns what was dropped since the last call: held connections without reply, and failed new ones.
func (tr *traffic) losses() (lost []string) {
	for i, conn := range tr.held {
		if err := echoOnce(conn); err != nil {
			lost = append(lost, fmt.Sprintf("held connection %d (%v): %v", i, conn.RemoteAddr(), err))
		}
	}
	for {
		select {
		case failure := <-tr.failed:
			lost = append(lost, "a new connection: "+failure)
		default:
			return lost
		}
	}
}

// expectNoLoss checks that nothing was dropped, also of new connections from now on: one to each target.
func (tr *traffic) expectNoLoss(t *testing.T, when string) {
	t.Helper()
	from, end := tr.attempts.Load(), time.Now().Add(time.Minute)
	for tr.attempts.Load() <= from+int64(len(targets)) { // those before the last one have ended
		if time.Now().After(end) {
			t.Errorf("%s: %d new connections were attempted in a minute", when, tr.attempts.Load()-from)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	tr.reportLosses(t, when)
}

func (tr *traffic) reportLosses(t *testing.T, when string) {
	t.Helper()
	for _, loss := range tr.losses() {
		t.Errorf("%s: %s", when, loss)
	}
	t.Logf("%s: %d held connections, %d new ones so far", when, len(tr.held), tr.attempts.Load())
}

// expectLoss ends the traffic of a red twin, of which something must have been dropped.
func (tr *traffic) expectLoss(t *testing.T, otherwise string) {
	t.Helper()
	close(tr.stop)
	<-tr.ended
	lost := tr.losses()
	if t.Logf("%d lost: %v", len(lost), lost); len(lost) == 0 {
		t.Error(otherwise)
	}
}

// counterPattern matches the part of a rule that packets change.
var counterPattern = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// kernelState returns everything that proxies leave in a kernel.
func kernelState(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "-s", "list", "ruleset"}, {"ipset", "save", "-s"}} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") {
				all.WriteString(counterPattern.ReplaceAllString(line, ""))
			}
		}
	}
	links, err := netlink.LinkList()
	testnode.Must(t, err)
	for _, l := range links {
		fmt.Fprintln(&all, "device", l.Attrs().Name)
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		testnode.Must(t, err)
		for _, a := range addrs {
			fmt.Fprintln(&all, "address", a.IPNet, "of", l.Attrs().Name)
		}
	}
	all.WriteString(proxierRoutes(t))
	servers, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	testnode.Must(t, err)
	for line := range strings.Lines(string(servers)) {
		switch words := strings.Fields(line); words[0] {
		case "TCP", "UDP", "SCTP":
			fmt.Fprintln(&all, "server", strings.Join(words, " "))
		case "->": // without connection counts
			fmt.Fprintln(&all, "real", strings.Join(words[1:4], " "))
		}
	}
	return all.String()
}

// proxierRoutes are the routes of the bundled proxier, with a word of ofBundled.
func proxierRoutes(t *testing.T) (lines string) {
	t.Helper()
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: linux.RouteProtocol},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	testnode.Must(t, err)
	for _, r := range routes {
		lines += fmt.Sprintln("hitless-proxier route", r.Dst)
	}
	return lines
}

// ofKubeProxy and ofBundled are words in the traces of the proxies.
var ofKubeProxy, ofBundled = []string{"KUBE-", "kube-"}, []string{"hitless-"}

// traces are the lines of the kernel's state with one of the words of a proxy.
func traces(t *testing.T, words []string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(kernelState(t)) {
		has := func(word string) bool { return strings.Contains(line, word) }
		if slices.ContainsFunc(words, has) && !has("KUBE-FIREWALL") { // which also belongs to the kubelet and stays
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// expectTraces fails if a proxy has no trace before its migration: then it cannot be told whether some are left.
func expectTraces(t *testing.T, of string, words []string) {
	t.Helper()
	if len(traces(t, words)) == 0 {
		t.Errorf("no trace of %s before its migration", of)
	}
}

// expectNoTraces fails for each trace of a proxy.
func expectNoTraces(t *testing.T, of string, words []string) {
	t.Helper()
	for _, line := range traces(t, words) {
		t.Errorf("trace of %s: %s", of, line)
	}
}

// startKubeProxy starts kube-proxy, and traffic once it serves.
func (c testbed) startKubeProxy(t *testing.T, mode string) (*testnode.Program, *traffic) {
	t.Helper()
	proxy := c.KubeProxy(t, testnode.ToolPath, mode)
	proxy.WaitUntil(t, "the Service", func() (served bool) {
		testnode.InNetns(c.client, func() {
			served = true
			for _, target := range targets {
				conn, err := net.DialTimeout("tcp", target, time.Second)
				if served = served && err == nil; err == nil {
					conn.Close()
				}
			}
		})
		return served
	})
	return proxy, c.startTraffic(t)
}

// The red twin: removing the old proxy's state before adding the new one drops connections.
func TestCleanupFirstDropsConnections(t *testing.T) {
	c := newTestbed(t)
	proxy, traffic := c.startKubeProxy(t, "ipvs")
	proxy.Stop(t)
	if lost := traffic.losses(); len(lost) > 0 {
		t.Errorf("dropped before the cleanup: %v", lost)
	}
	handle, err := ipvs.New("")
	testnode.Must(t, err)
	defer handle.Close()
	testnode.Must(t, handle.Flush())
	device, err := netlink.LinkByName("kube-ipvs0")
	testnode.Must(t, err)
	testnode.Must(t, netlink.LinkDel(device))
	bundled := c.Bundled(t)
	traffic.expectLoss(t, "cleaning up first dropped nothing, so the zeros of TestMigration prove nothing")
	bundled.Stop(t)
}

// withoutModprobe returns a PATH with nft only. In mode nftables kube-proxy flushes all of IPVS at its start unless
// it finds no modprobe to check for ip_vs (pkg/proxy/ipvs/cleanup.go of v1.37.1).
func withoutModprobe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testnode.Must(t, os.Symlink("/usr/sbin/nft", dir+"/nft"))
	return dir
}

// The red twin of the migration to nftables: with modprobe kube-proxy deletes the virtual servers at its start,
// before it has its own rules.
func TestKubeProxyWithModprobeFlushesIPVS(t *testing.T) {
	c := newTestbed(t)
	bundled := c.Bundled(t)
	traffic := c.startTraffic(t)
	bundled.Stop(t)
	if lost := traffic.losses(); len(lost) > 0 {
		t.Errorf("dropped before kube-proxy was started: %v", lost)
	}
	proxy := c.KubeProxy(t, testnode.ToolPath, "nftables")
	traffic.expectLoss(t, "kube-proxy with modprobe dropped nothing, so hiding modprobe proves nothing")
	proxy.Stop(t)
}

// Migrating from and to each mode of kube-proxy drops no connection and leaves nothing behind.
func TestMigration(t *testing.T) {
	for _, mode := range []string{"ipvs", "iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			c := newTestbed(t)
			proxy, traffic := c.startKubeProxy(t, mode)
			if out, err := c.migrate("--from="+mode, "--to=bundled"); err == nil || !strings.Contains(out, "still runs") {
				t.Errorf("while kube-proxy runs: %v: %s", err, out)
			}
			proxy.Stop(t)
			before := kernelState(t)
			plan, err := c.migrate("--from="+mode, "--to=bundled", "--dry-run")
			if err != nil {
				t.Fatalf("dry run: %v: %s", err, plan)
			}
			t.Logf("the plan\n%s", plan)
			if after := kernelState(t); after != before {
				t.Errorf("the dry run changed the kernel from\n%s\nto\n%s", before, after)
			}
			traffic.expectNoLoss(t, "before")
			expectTraces(t, "kube-proxy", ofKubeProxy)
			out, err := c.migrate("--from="+mode, "--to=bundled")
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if dry := strings.TrimPrefix(plan, "dry run: nothing is changed\n"); out != dry {
				t.Errorf("steps\n%s\nwant the plan\n%s", out, dry)
			}
			traffic.expectNoLoss(t, "served by the bundled proxier")
			expectNoTraces(t, "kube-proxy", ofKubeProxy)
			bundled := c.Bundled(t)
			traffic.expectNoLoss(t, "the proxier adopted the kernel state")
			newer := c.hold(t, heldPort+8)
			bundled.Stop(t)
			c.migrateBack(t, mode, traffic, newer)
		})
	}
}

// drainTimeout bounds the migration's wait for connections that only IPVS translates.
const drainTimeout = 20 * time.Second

// expectWaiting checks that held connections work while the migration waits for them.
func (tr *traffic) expectWaiting(t *testing.T, moved <-chan struct{}) {
	t.Helper()
	for second := range 6 {
		select {
		case <-moved:
			t.Errorf("the migration waited only %d s for %d open connections", second, len(tr.held))
			return
		case <-time.After(time.Second):
			tr.expectNoLoss(t, fmt.Sprintf("open for %d s on the way back", second+1))
		}
	}
}

// migrateBack migrates to kube-proxy with older and newer connections. The newer ones, which only IPVS translates,
// are kept until drainTimeout.
func (c testbed) migrateBack(t *testing.T, mode string, traffic *traffic, newer []net.Conn) {
	t.Helper()
	older := traffic.held
	traffic.held = slices.Concat(older, newer)
	if out, err := c.migrate("--from=bundled", "--to="+mode); err == nil || !strings.Contains(out, "does not serve") {
		t.Errorf("without kube-proxy: %v: %s", err, out)
	}
	tools := testnode.ToolPath
	if mode == "nftables" {
		tools = withoutModprobe(t)
	}
	proxy := c.KubeProxy(t, tools, mode)
	proxy.WaitUntil(t, "kube-proxy to serve", func() bool {
		_, err := c.migrate("--from=bundled", "--to="+mode, "--dry-run")
		return err == nil
	})
	expectTraces(t, "the bundled proxier", ofBundled)
	var out string
	var err error
	moved := make(chan struct{})
	own, nsErr := netns.Get()
	testnode.Must(t, nsErr)
	go testnode.InNetns(own, func() {
		defer close(moved)
		out, err = c.migrate("--from=bundled", "--to="+mode, "--drain-interval=1s", "--drain-gone-period="+drainTimeout.String())
	})
	traffic.expectNoLoss(t, "on the way back")
	if mode != "ipvs" {
		traffic.expectWaiting(t, moved)
	}
	<-moved
	if err != nil {
		t.Fatalf("back: %v: %s", err, out)
	}
	if mode != "ipvs" {
		for i, conn := range newer {
			if err := echoOnce(conn); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("connection %d (%v), open for longer than %s, ends with %v, want a reset", i, conn.RemoteAddr(), drainTimeout, err)
			}
		}
		traffic.held = older // conntrack translates these
	}
	traffic.expectNoLoss(t, "served by kube-proxy again")
	close(traffic.stop)
	<-traffic.ended
	traffic.reportLosses(t, "at the end")
	expectNoTraces(t, "the bundled proxier", ofBundled)
	if state := kernelState(t); mode != "ipvs" && strings.Contains(state, "server ") {
		t.Errorf("virtual servers remain:\n%s", state)
	}
	proxy.Stop(t)
}
