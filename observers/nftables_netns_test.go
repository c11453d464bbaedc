//go:build netns

package observers

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/hitless/hitless/record"
)

// The rules of kube-proxy for a Service with externalTrafficPolicy Local, in three formats. Connections from pods and from the
// node itself reach every pod; those from outside reach the pods of the node.
const (
	// randomMap is the format of kube-proxy 1.37 in nftables mode, and endpointChains that of 1.30.
	randomMap = `
table ip kube-proxy
delete table ip kube-proxy
table ip kube-proxy {
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
	map service-nodeports { type inet_proto . inet_service : verdict; }
	set affinity { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
	chain service-A { meta l4proto tcp dnat ip to numgen random mod 3 map { 0 : 10.244.2.7 . 8080, 1 : 10.244.2.8 . 8080, 2 : 10.244.3.9 . 8080 }; }
	chain external-A {
		ip saddr 10.244.0.0/16 goto service-A
		fib saddr type local meta mark set mark or 0x4000
		fib saddr type local goto service-A
		PODS
	}
	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
	}
	chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain filter-forward { type filter hook forward priority -110; ct state new ip daddr 203.0.113.10 reject; }
}
add element ip kube-proxy service-ips { 203.0.113.10 . tcp . 80 : goto external-A, 203.0.113.11 . tcp . 80 : goto service-A }
add element ip kube-proxy service-nodeports { tcp . 30080 : goto external-A }
`
	endpointChains = `
table ip kube-proxy
delete table ip kube-proxy
table ip kube-proxy {
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
	set affinity { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
	chain mark-for-masquerade { mark set mark or 0x4000; }
	chain endpoint-7 { ip saddr 10.244.2.7 jump mark-for-masquerade; update @affinity { ip saddr }; meta l4proto tcp dnat to 10.244.2.7:8080; }
	chain endpoint-8 { ip saddr 10.244.2.8 jump mark-for-masquerade; meta l4proto tcp dnat to 10.244.2.8:8080; }
	chain endpoint-9 { meta l4proto tcp dnat to 10.244.3.9:8080; }
	chain service-A {
		ip daddr 10.96.0.10 tcp dport 80 ip saddr != 10.244.0.0/16 jump mark-for-masquerade
		numgen random mod 3 vmap { 0 : goto endpoint-7, 1 : goto endpoint-8, 2 : goto endpoint-9 }
	}
	chain external-A {
		ip saddr 10.244.0.0/16 goto service-A
		fib saddr type local goto service-A
		PODS
	}
	chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
	chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
	chain nat-output { type nat hook output priority -100; jump services; }
}
add element ip kube-proxy service-ips { 203.0.113.10 . tcp . 80 : goto external-A, 203.0.113.11 . tcp . 80 : goto service-A }
`
	iptablesRules = `*nat
:PREROUTING ACCEPT
:OUTPUT ACCEPT
:KUBE-SERVICES -
:KUBE-NODEPORTS -
:KUBE-EXT-A -
:KUBE-SVC-A -
:KUBE-SVL-A -
:KUBE-SEP-7 -
:KUBE-SEP-8 -
:KUBE-SEP-9 -
:KUBE-MARK-MASQ -
-A PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "service portals" -j KUBE-SERVICES
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-SERVICES -m comment --comment "other" -m tcp -p tcp -d 203.0.113.11/32 --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -m comment --comment "balancer IP" -m tcp -p tcp -d 203.0.113.10/32 --dport 80 -j KUBE-EXT-A
-A KUBE-SERVICES -m comment --comment "last" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -m tcp -p tcp --dport 30080 -j KUBE-EXT-A
-A KUBE-EXT-A -s 10.244.0.0/16 -j KUBE-SVC-A
-A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-SVC-A
-A KUBE-EXT-A -j KUBE-SVL-A
PODS
-A KUBE-SVC-A ! -s 10.244.0.0/16 -m tcp -p tcp -d 10.96.0.10 --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m recent --name KUBE-SEP-7 --rcheck --seconds 10800 --reap -j KUBE-SEP-7
-A KUBE-SVC-A -m statistic --mode random --probability 0.3333 -j KUBE-SEP-7
-A KUBE-SVC-A -m statistic --mode random --probability 0.5 -j KUBE-SEP-8
-A KUBE-SVC-A -j KUBE-SEP-9
-A KUBE-SEP-7 -s 10.244.2.7 -j KUBE-MARK-MASQ
-A KUBE-SEP-7 -m tcp -p tcp -j DNAT --to-destination 10.244.2.7:8080
-A KUBE-SEP-8 -m tcp -p tcp -j DNAT --to-destination 10.244.2.8:8080
-A KUBE-SEP-9 -m tcp -p tcp -j DNAT --to-destination 10.244.3.9:8080
COMMIT
`
)

var formats = map[string]struct {
	program, rules string
	local          map[string]string // replacement of PODS, by the pods of the node
}{
	"randomMap": {"nft -f -", randomMap, map[string]string{
		"7,8": "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.2.7 . 8080, 1 : 10.244.2.8 . 8080 }",
		"8":   "meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.244.2.8 . 8080 }"}},
	"endpointChains": {"nft -f -", endpointChains, map[string]string{
		"7,8": "numgen random mod 2 vmap { 0 : goto endpoint-7, 1 : goto endpoint-8 }",
		"8":   "numgen random mod 1 vmap { 0 : goto endpoint-8 }"}},
	"iptables": {"iptables-restore --noflush", iptablesRules, map[string]string{
		"7,8": "-A KUBE-SVL-A -m statistic --mode random --probability 0.5 -j KUBE-SEP-7\n-A KUBE-SVL-A -j KUBE-SEP-8",
		"8":   "-A KUBE-SVL-A -j KUBE-SEP-8"}},
}

// monitoredNode is a namespace whose nftables are monitored, and the recorded events.
type monitoredNode struct {
	Node
	*nftMonitor
	begin      time.Time
	clockReads atomic.Int64

	mu        sync.Mutex
	clock     sync.RWMutex // reads of the clock block while the test holds it
	addresses []ServiceAddress
	events    []record.Event
}

func (g *monitoredNode) Event(e record.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

func (g *monitoredNode) Attempt(record.Attempt) {}

func (g *monitoredNode) now() time.Duration {
	g.clockReads.Add(1)
	g.clock.RLock()
	defer g.clock.RUnlock()
	return time.Since(g.begin)
}

func newMonitoredNode(t *testing.T, buffer int, addresses ...ServiceAddress) *monitoredNode {
	t.Helper()
	g := &monitoredNode{Node: Node{Name: "node-2", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.12")}, Namespace: newNamespace(t)}, begin: time.Now(), addresses: addresses}
	var err error
	if g.nftMonitor, err = newNFTMonitor(g.Node, buffer, func() []ServiceAddress { return g.addresses }, g, g.now); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { g.run(ctx) })
	t.Cleanup(wait.Wait)
	t.Cleanup(cancel)
	return g
}

// load passes rules to a program in the node's namespace on its standard input.
func (g *monitoredNode) load(t *testing.T, program, rules string) {
	t.Helper()
	err := g.Do(func() error {
		words := strings.Fields(program)
		c := exec.Command(words[0], words[1:]...)
		c.Stdin = strings.NewReader(rules)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("%s: %s", program, out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// await returns the events once the condition holds.
func (g *monitoredNode) await(t *testing.T, what string, condition func([]record.Event) bool) []record.Event {
	t.Helper()
	var events []record.Event
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		events = slices.Clone(g.events)
		g.mu.Unlock()
		if condition(events) {
			return events
		}
	}
	t.Fatalf("%s: no such events within a minute: %+v", what, events)
	return nil
}

// awaitBackends awaits that the last recorded state of an address has the backends.
func (g *monitoredNode) awaitBackends(t *testing.T, s ServiceAddress, backends string) record.Event {
	t.Helper()
	events := g.await(t, s.Address.String()+" has "+backends, func(events []record.Event) bool {
		e, recorded := lastOf(events, s)
		return recorded && tableOf(e).Backends.String() == backends && (tableOf(e).State == record.TableAbsent) == (backends == "")
	})
	e, _ := lastOf(events, s)
	return e
}

func lastOf(events []record.Event, s ServiceAddress) (record.Event, bool) {
	for _, e := range slices.Backward(events) {
		if e.Kind() == record.KindKernelTable && e.Object == s.Address.String() {
			return e, true
		}
	}
	return record.Event{}, false
}

// evaluate evaluates the rules once, without the monitor.
func (g *monitoredNode) evaluate(s ServiceAddress) (found map[netip.AddrPort]int, err error) {
	err = g.Do(func() error {
		conn, err := nftables.New()
		if err == nil {
			found, err = possibleBackends(newKernelRules(conn), g.Addrs, s)
		}
		return err
	})
	return found, err
}

func serviceAddress(address string, clients string) ServiceAddress {
	return ServiceAddress{Address: netip.MustParseAddrPort(address), Clients: netip.MustParsePrefix(clients)}
}

const everyPod = "10.244.2.7:8080=1,10.244.2.8:8080=1,10.244.3.9:8080=1"

// Each change of the backends is recorded in order, with the program that made it, in every format of the rules. One program makes all
// changes of a format, because two before one read are not told apart. A transaction that does not change the backends is not recorded.
func TestChangesOfRulesAreRecordedInOrder(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	for name, format := range formats {
		g := newMonitoredNode(t, 0, outside)
		rules := func(pods string) string { return strings.Replace(format.rules, "PODS", format.local[pods], 1) }
		other, flush, by := "add table ip other", "flush ruleset", "nft"
		if name == "iptables" {
			other, flush, by = "*filter\n:OTHER - [0:0]\nCOMMIT\n", "*nat\n-F\n-X\nCOMMIT\n", "iptables-restor" // the kernel keeps 15 letters
		}
		made := g.now()
		g.load(t, format.program, rules("7,8"))
		first := g.awaitBackends(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
		if first.At < made || first.Node != "node-2" || tableOf(first).Table != record.TableNFTables {
			t.Errorf("%s: made at %v or later, recorded as %+v", name, made, first)
		}
		g.load(t, format.program, other)
		g.load(t, format.program, rules("8"))
		g.awaitBackends(t, outside, "10.244.2.8:8080=1")
		changed := g.now()
		g.load(t, format.program, flush)
		last := g.awaitBackends(t, outside, "")
		if from := tableOf(last).From; from == nil || *from > last.At || last.At < changed || tableOf(last).By != by {
			t.Errorf("%s: flushed at %v or later, recorded as %+v", name, changed, last)
		}
		events := g.await(t, name, func([]record.Event) bool { return true })
		if len(events) != 3 {
			t.Errorf("%s: %d events, want 3: %+v", name, len(events), events)
		}
	}
}

// The backends depend on the clients: outside, a pod or the node itself. Other addresses, ports and protocols have none.
func TestBackendsDependOnTheClient(t *testing.T) {
	local := "10.244.2.7:8080=1,10.244.2.8:8080=1"
	for name, format := range formats {
		g := newMonitoredNode(t, 0)
		g.load(t, format.program, strings.Replace(format.rules, "PODS", format.local["7,8"], 1))
		udp := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
		udp.UDP = true
		for i, c := range []struct {
			ServiceAddress
			want string
		}{
			{serviceAddress("203.0.113.10:80", "10.200.0.0/16"), local},
			{serviceAddress("203.0.113.10:80", "10.244.250.2/32"), everyPod},
			{serviceAddress("203.0.113.10:80", "10.0.0.12/32"), everyPod},
			{serviceAddress("203.0.113.10:80", "10.0.0.11/32"), local},
			{serviceAddress("203.0.113.11:80", "10.200.0.0/16"), everyPod},
			{serviceAddress("203.0.113.10:81", "10.200.0.0/16"), ""},
			{serviceAddress("203.0.113.12:80", "10.200.0.0/16"), ""},
			{serviceAddress("10.0.0.12:30080", "10.200.0.0/16"), map[bool]string{true: local}[name != "endpointChains"]},
			{serviceAddress("10.0.0.13:30080", "10.200.0.0/16"), ""},
			{udp, ""},
		} {
			got, err := g.evaluate(c.ServiceAddress)
			if words := record.NewBackendList(got).String(); err != nil || words != c.want {
				t.Errorf("%s, %d: %s from %s gets %q, %v; want %q", name, i, c.Address, c.Clients, words, err, c.want)
			}
		}
	}
}

// Of two proxies' tables in one kernel, that with the lower priority value translates; with equal values, either may.
func TestFirstTableTranslates(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	g := newMonitoredNode(t, 0, outside)
	g.load(t, formats["randomMap"].program, strings.Replace(randomMap, "PODS", formats["randomMap"].local["8"], 1))
	g.load(t, "nft -f -", `table inet first { chain c { type nat hook prerouting priority -150; ip daddr 203.0.113.10 tcp dport 80 dnat ip to 10.244.9.9:80; }; }`)
	g.awaitBackends(t, outside, "10.244.9.9:80=1")
	g.load(t, "nft -f -", `delete table inet first`)
	g.awaitBackends(t, outside, "10.244.2.8:8080=1")
	g.load(t, "nft -f -", `table ip second { chain c { type nat hook prerouting priority -100; ip daddr 203.0.113.10 tcp dport 80 dnat to 10.244.9.9:80; }; }`)
	g.awaitBackends(t, outside, "10.244.2.8:8080=1,10.244.9.9:80=1")
	g.load(t, "nft -f -", `delete table ip second`)
	g.load(t, "nft -f -", `table ip first { chain c { type nat hook prerouting priority -150; ip daddr 203.0.113.10 accept; }; }`)
	g.load(t, "nft -f -", `table ip after { chain c { type nat hook prerouting priority -50; ip daddr 203.0.113.10 tcp dport 80 dnat to 10.244.9.9:80; }; }`)
	g.load(t, "nft -f -", `delete table ip kube-proxy`)
	g.awaitBackends(t, outside, "10.244.9.9:80=1")
}

// An overflow of the receive buffer is recorded with its bounds, and later changes are recorded as before.
func TestOverflowIsRecorded(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	g := newMonitoredNode(t, 1, outside)
	rules := func(pods string) string {
		return strings.Replace(randomMap, "PODS", formats["randomMap"].local[pods], 1)
	}
	g.load(t, "nft -f -", rules("7,8"))
	before := g.awaitBackends(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
	g.clock.Lock() // the receiver blocks at the first notification
	err := g.Do(func() error {
		c, err := nftables.New()
		for range 100 {
			if err == nil {
				c.DelTable(c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "noise"}))
				err = c.Flush()
			}
		}
		return err
	})
	g.clock.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	overflow := func(events []record.Event) bool {
		return slices.ContainsFunc(events, func(e record.Event) bool {
			return e.Kind() == record.KindLog && e.Node == "node-2" && strings.Contains(e.Text, "is not known")
		})
	}
	g.await(t, "the overflow", overflow)
	g.load(t, "nft -f -", rules("8"))
	if after := g.awaitBackends(t, outside, "10.244.2.8:8080=1"); after.At <= before.At {
		t.Errorf("%v comes after %v", after.At, before.At)
	}
}

// With a sufficient buffer no change is lost, however many come at once.
func TestNoOverflowWithSufficientBuffer(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	g := newMonitoredNode(t, 0, outside)
	for i := range 20 {
		g.load(t, "nft -f -", strings.Replace(randomMap, "PODS", formats["randomMap"].local[[]string{"7,8", "8"}[i%2]], 1))
	}
	g.load(t, "nft -f -", "flush ruleset")
	g.awaitBackends(t, outside, "") // no earlier state is absent, so that all changes were read
	events := g.await(t, "", func([]record.Event) bool { return true })
	for i, e := range events {
		if e.Kind() != record.KindKernelTable || (i > 0 && (e.At < events[i-1].At || slices.Equal(tableOf(e).Backends, tableOf(events[i-1]).Backends))) {
			t.Errorf("event %d of %d: %+v", i, len(events), e)
		}
	}
}

// A transaction of any size needs the buffer of one notification.
func TestLargeTransactionIsOneNotification(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	g := newMonitoredNode(t, 1, outside)
	g.load(t, "nft -f -", strings.Replace(randomMap, "PODS", formats["randomMap"].local["7,8"], 1)+
		"table ip other { chain c {\n"+strings.Repeat("ip daddr 203.0.113.99 counter\n", 200)+"}\n}\n")
	g.awaitBackends(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
	g.load(t, "nft -f -", "flush ruleset")
	g.awaitBackends(t, outside, "")
	if events := g.await(t, "", func([]record.Event) bool { return true }); len(events) != 2 {
		t.Errorf("%d events, want 2: %+v", len(events), events)
	}
}

// A node without changes is not read, and no timer runs.
func TestIdleNodeIsNotRead(t *testing.T) {
	outside := serviceAddress("203.0.113.10:80", "10.200.0.0/16")
	g := newMonitoredNode(t, 0, outside)
	g.load(t, "nft -f -", strings.Replace(randomMap, "PODS", formats["randomMap"].local["8"], 1))
	g.awaitBackends(t, outside, "10.244.2.8:8080=1")
	idle := func() bool {
		before := g.clockReads.Load()
		time.Sleep(200 * time.Millisecond)
		return g.clockReads.Load() == before
	}
	for end := time.Now().Add(time.Minute); !idle(); {
		if time.Now().After(end) {
			t.Fatal("the node was read repeatedly for a minute")
		}
	}
	before := g.clockReads.Load()
	time.Sleep(3 * time.Second) // the tested time: longer than an interval of any timer
	if n := g.clockReads.Load() - before; n != 0 {
		t.Errorf("the idle node was read, with %d readings of the clock", n)
	}
}
