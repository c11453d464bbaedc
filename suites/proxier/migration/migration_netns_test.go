//go:build netns

// Package migration moves a node from an unmodified kube-proxy to the bundled proxier and back, under traffic. It runs in the
// lab's kernel: go test -tags lab ./suites/proxier
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
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/suites/proxier/stage"
)

const (
	nodeAddr    = "192.0.2.1"
	clientAddr  = "192.0.2.2"
	gatewayAddr = "10.244.1.254"
	clusterIP   = "10.96.0.10"
	externalIP  = "203.0.113.10"
)

var podAddrs = []string{"10.244.1.1", "10.244.1.2"}

// place is the node with a client on one side and pods on the other, each in a namespace.
type place struct {
	*stage.Node
	client netns.NsHandle
}

func newPlace(t *testing.T) place {
	t.Helper()
	n := stage.New(t, plane(t))
	client := n.Neighbour(t, "client", []string{nodeAddr}, clientAddr)
	pods := n.Neighbour(t, "pods", []string{gatewayAddr}, podAddrs...)
	stage.Inside(pods, func() {
		l, err := net.Listen("tcp4", ":8080")
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		go answer(l)
	})
	return place{n, client}
}

// answer echoes.
func answer(l net.Listener) {
	for c, err := l.Accept(); err == nil; c, err = l.Accept() {
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// plane has one Service of type LoadBalancer with two pods, and the Node.
func plane(t *testing.T) *replay.Server {
	t.Helper()
	plane := replay.New()
	name, port, yes, where := "http", int32(8080), true, stage.Name
	about := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	svc := &v1.Service{ObjectMeta: about, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
		IPFamilies: []v1.IPFamily{v1.IPv4Protocol}, Ports: []v1.ServicePort{{Name: name, Port: 80, NodePort: 30080, Protocol: v1.ProtocolTCP}}}}
	svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: externalIP}}
	slice := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discovery.LabelServiceName: "web"}},
		AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &name, Port: &port}}}
	for _, pod := range podAddrs {
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{Addresses: []string{pod}, NodeName: &where, Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes}})
	}
	this := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: stage.Name}}
	this.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: nodeAddr}}
	_, err := plane.Apply(svc)
	stage.Must(t, err)
	_, err = plane.Apply(slice)
	stage.Must(t, err)
	_, err = plane.Apply(this)
	stage.Must(t, err)
	return plane
}

func (c place) migrate(args ...string) (string, error) {
	out, err := exec.Command("/usr/bin/hitless", append([]string{"proxier", "migrate"}, c.Args(args...)...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out) + string(exit.Stderr), err
	}
	return string(out), err
}

// talk asks on a connection, and returns why no answer came.
func talk(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// traffic is connections that are held, and new ones all the time, to each address.
type traffic struct {
	held     []net.Conn
	attempts atomic.Int64
	failed   chan string
	stop     chan struct{}
	ended    chan struct{}
}

var targets = []string{clusterIP + ":80", externalIP + ":80", nodeAddr + ":30080"}

func (c place) traffic(t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{failed: make(chan string, 1000), stop: make(chan struct{}), ended: make(chan struct{})}
	tr.held = c.hold(t, heldPort)
	go stage.Inside(c.client, func() {
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

// hold opens eight connections, from ports of their own.
func (c place) hold(t *testing.T, port int) (held []net.Conn) {
	t.Helper()
	for i := range 8 {
		stage.Inside(c.client, func() {
			conn, err := dial(port+i, targets[i%len(targets)])
			if err == nil {
				err = talk(conn)
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

// Each connection has a source port of its own, below those that Linux gives out. IPVS knows the answers of a pod by the
// client's address and port alone, whichever virtual address they went to; two connections from one port, as Linux allows
// them towards two addresses, are one too many for it.
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
		err = talk(conn)
		conn.Close()
	}
	if err != nil {
		tr.failed <- fmt.Sprintf("%s: %v", target, err)
	}
}

// losses are what was lost since the last time: held connections that do not answer, and new ones that failed.
func (tr *traffic) losses() (lost []string) {
	for i, conn := range tr.held {
		if err := talk(conn); err != nil {
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

// judge checks that nothing was lost.
func (tr *traffic) judge(t *testing.T, when string) {
	t.Helper()
	for _, loss := range tr.losses() {
		t.Errorf("%s: %s", when, loss)
	}
	t.Logf("%s: %d held connections, %d new ones so far", when, len(tr.held), tr.attempts.Load())
}

// lose ends a twin's traffic, of which something must have been lost.
func (tr *traffic) lose(t *testing.T, otherwise string) {
	t.Helper()
	close(tr.stop)
	<-tr.ended
	lost := tr.losses()
	if t.Logf("%d lost: %v", len(lost), lost); len(lost) == 0 {
		t.Error(otherwise)
	}
}

// counted is what packets change in a rule.
var counted = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// kernelSays is all that proxies leave in a kernel, as its own tools show it.
func kernelSays(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "-s", "list", "ruleset"}, {"ipset", "save", "-s"}} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") {
				all.WriteString(counted.ReplaceAllString(line, ""))
			}
		}
	}
	links, err := netlink.LinkList()
	stage.Must(t, err)
	for _, l := range links {
		fmt.Fprintln(&all, "device", l.Attrs().Name)
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		stage.Must(t, err)
		for _, a := range addrs {
			fmt.Fprintln(&all, "address", a.IPNet, "of", l.Attrs().Name)
		}
	}
	servers, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	stage.Must(t, err)
	for line := range strings.Lines(string(servers)) {
		switch words := strings.Fields(line); words[0] {
		case "TCP", "UDP", "SCTP":
			fmt.Fprintln(&all, "server", strings.Join(words, " "))
		case "->": // its connections come and go
			fmt.Fprintln(&all, "real", strings.Join(words[1:4], " "))
		}
	}
	return all.String()
}

// free fails for each trace of a proxy.
func free(t *testing.T, of string, words ...string) {
	t.Helper()
	says := kernelSays(t)
	for line := range strings.Lines(says) {
		for _, word := range words { // KUBE-FIREWALL is the kubelet's too, and stays
			if strings.Contains(line, word) && !strings.Contains(line, "KUBE-FIREWALL") {
				t.Errorf("of %s is left: %s", of, strings.TrimSpace(line))
			}
		}
	}
}

// serving starts a kube-proxy, and traffic once it serves.
func (c place) serving(t *testing.T, mode string) (*stage.Program, *traffic) {
	t.Helper()
	proxy := c.KubeProxy(t, stage.Path, mode)
	proxy.Until(t, "the Service", func() (served bool) {
		stage.Inside(c.client, func() {
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
	return proxy, c.traffic(t)
}

// The twin: the old proxy's things go first, as by hand or by `kube-proxy --cleanup`, and the new ones come after.
func TestCleanupFirst(t *testing.T) {
	c := newPlace(t)
	proxy, traffic := c.serving(t, "ipvs")
	proxy.Stop(t)
	if lost := traffic.losses(); len(lost) > 0 {
		t.Errorf("lost before anything was done: %v", lost)
	}
	handle, err := ipvs.New("")
	stage.Must(t, err)
	defer handle.Close()
	stage.Must(t, handle.Flush())
	device, err := netlink.LinkByName("kube-ipvs0")
	stage.Must(t, err)
	stage.Must(t, netlink.LinkDel(device))
	bundled := c.Bundled(t)
	traffic.lose(t, "cleaning up first lost nothing, so that the zeros of the right order say nothing")
	bundled.Stop(t)
}

// withoutModprobe is a path that leads to nft alone. Kube-proxy flushes IPVS whenever it starts in mode nftables, whosever virtual
// servers there are, but where it finds no modprobe to ask for ip_vs (pkg/proxy/ipvs/cleanup.go of v1.37.1).
func withoutModprobe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	stage.Must(t, os.Symlink("/usr/sbin/nft", dir+"/nft"))
	return dir
}

// The twin of the way back to nftables: with modprobe the virtual servers go when kube-proxy starts, before it has its own rules.
func TestStartWithModprobeFlushes(t *testing.T) {
	c := newPlace(t)
	bundled := c.Bundled(t)
	traffic := c.traffic(t)
	bundled.Stop(t)
	if lost := traffic.losses(); len(lost) > 0 {
		t.Errorf("lost before kube-proxy came: %v", lost)
	}
	proxy := c.KubeProxy(t, stage.Path, "nftables")
	traffic.lose(t, "kube-proxy flushed IPVS and lost nothing, so that going without modprobe says nothing")
	proxy.Stop(t)
}

// There and back, from and to each mode of kube-proxy, no connection is lost and nothing stays behind.
func TestMigration(t *testing.T) {
	for _, mode := range []string{"ipvs", "iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			c := newPlace(t)
			proxy, traffic := c.serving(t, mode)
			if out, err := c.migrate("--from="+mode, "--to=bundled"); err == nil || !strings.Contains(out, "still runs") {
				t.Errorf("while kube-proxy runs: %v: %s", err, out)
			}
			proxy.Stop(t)
			before := kernelSays(t)
			plan, err := c.migrate("--from="+mode, "--to=bundled", "--dry-run")
			if err != nil {
				t.Fatalf("dry run: %v: %s", err, plan)
			}
			t.Logf("the plan\n%s", plan)
			if after := kernelSays(t); after != before {
				t.Errorf("the dry run changed the kernel from\n%s\nto\n%s", before, after)
			}
			traffic.judge(t, "before")
			out, err := c.migrate("--from="+mode, "--to=bundled")
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if dry := strings.TrimPrefix(plan, "dry run: nothing is changed\n"); out != dry {
				t.Errorf("it did\n%s\nand the plan was\n%s", out, dry)
			}
			traffic.judge(t, "served by the bundled proxier")
			free(t, "kube-proxy", "KUBE-", "kube-")
			bundled := c.Bundled(t)
			traffic.judge(t, "the proxier has taken over what is there")
			through := c.hold(t, heldPort+8)
			bundled.Stop(t)
			c.back(t, mode, traffic, through)
		})
	}
}

// patience is how long the way back waits for what only IPVS knows.
const patience = 20 * time.Second

// waitedFor checks that held connections answer for a part of the patience, while the way back waits for them.
func (tr *traffic) waitedFor(t *testing.T, moved <-chan struct{}) {
	t.Helper()
	for second := range 6 {
		select {
		case <-moved:
			t.Errorf("after %d s it waited no more for %d open connections", second, len(tr.held))
			return
		case <-time.After(time.Second):
			tr.judge(t, fmt.Sprintf("open for %d s on the way back", second+1))
		}
	}
}

// back hands the node over to kube-proxy again, with the connections that came through the proxier. Those that only IPVS knows are
// waited for, but not for ever.
func (c place) back(t *testing.T, mode string, traffic *traffic, through []net.Conn) {
	t.Helper()
	older := traffic.held
	traffic.held = slices.Concat(older, through)
	if out, err := c.migrate("--from=bundled", "--to="+mode); err == nil || !strings.Contains(out, "does not serve") {
		t.Errorf("without kube-proxy: %v: %s", err, out)
	}
	tools := stage.Path
	if mode == "nftables" {
		tools = withoutModprobe(t)
	}
	proxy := c.KubeProxy(t, tools, mode)
	proxy.Until(t, "kube-proxy to serve", func() bool {
		_, err := c.migrate("--from=bundled", "--to="+mode, "--dry-run")
		return err == nil
	})
	var out string
	var err error
	moved := make(chan struct{})
	own, nsErr := netns.Get()
	stage.Must(t, nsErr)
	go stage.Inside(own, func() {
		defer close(moved)
		out, err = c.migrate("--from=bundled", "--to="+mode, "--drain-interval=1s", "--drain-gone-period="+patience.String())
	})
	traffic.judge(t, "on the way back")
	if mode != "ipvs" {
		traffic.waitedFor(t, moved)
	}
	<-moved
	if err != nil {
		t.Fatalf("back: %v: %s", err, out)
	}
	if mode != "ipvs" {
		for i, conn := range through {
			if err := talk(conn); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("connection %d (%v), open for longer than %s, ends with %v, want a reset", i, conn.RemoteAddr(), patience, err)
			}
		}
		traffic.held = older // which conntrack translates, as it did before
	}
	traffic.judge(t, "served by kube-proxy again")
	close(traffic.stop)
	<-traffic.ended
	traffic.judge(t, "at the end")
	free(t, "the bundled proxier", "hitless-")
	if says := kernelSays(t); mode != "ipvs" && strings.Contains(says, "server ") {
		t.Errorf("virtual servers are left:\n%s", says)
	}
	proxy.Stop(t)
}
