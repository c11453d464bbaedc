//go:build netns

package tables

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/reports"
)

// The rules of kube-proxy for a Service with externalTrafficPolicy Local, as three of its kinds make them: what comes from pods
// and from the node itself goes to every pod, what comes from outside to those of the node.
const (
	// numbers is that of kube-proxy 1.37 in its nftables mode, and chains that of 1.30.
	numbers = `
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
	chained = `
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
	iptables = `*nat
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

var kinds = map[string]struct {
	program, rules string
	local          map[string]string // by the pods of the node: what stands for PODS
}{
	"numbers": {"nft -f -", numbers, map[string]string{
		"7,8": "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.2.7 . 8080, 1 : 10.244.2.8 . 8080 }",
		"8":   "meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.244.2.8 . 8080 }"}},
	"chains": {"nft -f -", chained, map[string]string{
		"7,8": "numgen random mod 2 vmap { 0 : goto endpoint-7, 1 : goto endpoint-8 }",
		"8":   "numgen random mod 1 vmap { 0 : goto endpoint-8 }"}},
	"iptables": {"iptables-restore --noflush", iptables, map[string]string{
		"7,8": "-A KUBE-SVL-A -m statistic --mode random --probability 0.5 -j KUBE-SEP-7\n-A KUBE-SVL-A -j KUBE-SEP-8",
		"8":   "-A KUBE-SVL-A -j KUBE-SEP-8"}},
}

// ground is a node of which nothing but its namespace exists, and a record of what its follower tells.
type ground struct {
	*topology.Node
	*follower
	begin time.Time
	asked atomic.Int64 // how often for the time

	mu      sync.Mutex
	held    sync.RWMutex // no time passes, for whoever asks, while the test holds it
	targets []Server
	events  []reports.Event
}

func (g *ground) Event(e reports.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

func (g *ground) Attempt(reports.Attempt) {}

func (g *ground) now() time.Duration {
	g.asked.Add(1)
	g.held.RLock()
	defer g.held.RUnlock()
	return time.Since(g.begin)
}

func newGround(t *testing.T, buffer int, targets ...Server) *ground {
	t.Helper()
	ns, err := topology.NewNamespace("node-2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	g := &ground{Node: &topology.Node{Namespace: ns, Addr: netip.MustParseAddr("10.0.0.12")}, begin: time.Now(), targets: targets}
	if g.follower, err = follow(g.Node, buffer, func() []Server { return g.targets }, g, g.now); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { g.run(ctx) })
	t.Cleanup(wait.Wait)
	t.Cleanup(cancel)
	return g
}

// load gives the node's kernel rules, through the standard input of a program.
func (g *ground) load(t *testing.T, program, rules string) {
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

// await returns the events, once they are as they should be.
func (g *ground) await(t *testing.T, what string, are func([]reports.Event) bool) []reports.Event {
	t.Helper()
	var events []reports.Event
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.mu.Lock()
		events = slices.Clone(g.events)
		g.mu.Unlock()
		if are(events) {
			return events
		}
	}
	t.Fatalf("%s: no such events within a minute: %+v", what, events)
	return nil
}

// lastIs awaits that the last state told of an address is the one.
func (g *ground) lastIs(t *testing.T, s Server, backends string) reports.Event {
	t.Helper()
	events := g.await(t, s.Address.String()+" has "+backends, func(events []reports.Event) bool {
		e, told := lastOf(events, s)
		return told && e.Attrs["backends"] == backends && (e.Attrs["state"] == "absent") == (backends == "")
	})
	e, _ := lastOf(events, s)
	return e
}

func lastOf(events []reports.Event, s Server) (reports.Event, bool) {
	for _, e := range slices.Backward(events) {
		if e.Kind == reports.EventTable && e.Object == s.Address.String() {
			return e, true
		}
	}
	return reports.Event{}, false
}

// chosen follows the rules once, beside the follower.
func (g *ground) chosen(s Server) (found map[netip.AddrPort]int, err error) {
	err = g.Do(func() error {
		conn, err := nftables.New()
		if err == nil {
			found, err = backends(rulesOf(conn), g.Addr, s)
		}
		return err
	})
	return found, err
}

func server(address string, from string) Server {
	return Server{Address: netip.MustParseAddrPort(address), From: netip.MustParsePrefix(from)}
}

const every = "10.244.2.7:8080=1,10.244.2.8:8080=1,10.244.3.9:8080=1"

// Whatever made the rules: each change of the backends that the kernel may choose is told, in order, with the program that made
// it, and what changes nothing is not told.
func TestChangesOfRulesAreToldInOrder(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	for name, kind := range kinds {
		g := newGround(t, 0, outside)
		rules := func(pods string) string { return strings.Replace(kind.rules, "PODS", kind.local[pods], 1) }
		made := g.now()
		g.load(t, kind.program, rules("7,8"))
		first := g.lastIs(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
		if first.At < made || first.Node != "node-2" || first.Attrs["table"] != "nftables" {
			t.Errorf("%s: made at %v or later, told as %+v", name, made, first)
		}
		g.load(t, "nft -f -", "add table ip other")
		g.load(t, kind.program, rules("8"))
		g.lastIs(t, outside, "10.244.2.8:8080=1")
		changed := g.now()
		g.load(t, "nft -f -", "flush ruleset")
		last := g.lastIs(t, outside, "")
		if from, err := strconv.ParseInt(last.Attrs["fromNs"], 10, 64); err != nil || time.Duration(from) > last.At || last.At < changed || last.Attrs["by"] != "nft" {
			t.Errorf("%s: flushed at %v or later, told as %+v (%v)", name, changed, last, err)
		}
		told := g.await(t, name, func([]reports.Event) bool { return true })
		if len(told) != 3 {
			t.Errorf("%s: %d events, want 3: %+v", name, len(told), told)
		}
	}
}

// The backends are those of connections from where the lanes are: who comes from a pod or from the node itself gets others; and
// neither another address, nor another port or protocol, has any.
func TestTheBackendsAreThoseOfTheClient(t *testing.T) {
	local := "10.244.2.7:8080=1,10.244.2.8:8080=1"
	for name, kind := range kinds {
		g := newGround(t, 0)
		g.load(t, kind.program, strings.Replace(kind.rules, "PODS", kind.local["7,8"], 1))
		udp := server("203.0.113.10:80", "10.200.0.0/16")
		udp.UDP = true
		for i, c := range []struct {
			Server
			want string
		}{
			{server("203.0.113.10:80", "10.200.0.0/16"), local},
			{server("203.0.113.10:80", "10.244.250.2/32"), every},
			{server("203.0.113.10:80", "10.0.0.12/32"), every},
			{server("203.0.113.10:80", "10.0.0.11/32"), local},
			{server("203.0.113.11:80", "10.200.0.0/16"), every},
			{server("203.0.113.10:81", "10.200.0.0/16"), ""},
			{server("203.0.113.12:80", "10.200.0.0/16"), ""},
			{server("10.0.0.12:30080", "10.200.0.0/16"), map[bool]string{true: local}[name != "chains"]},
			{server("10.0.0.13:30080", "10.200.0.0/16"), ""},
			{udp, ""},
		} {
			got, err := g.chosen(c.Server)
			if words := reports.FormatBackends(got); err != nil || words != c.want {
				t.Errorf("%s, %d: %s from %s gets %q, %v; want %q", name, i, c.Address, c.From, words, err, c.want)
			}
		}
	}
}

// With two proxies' rules in one kernel, those win that come first; with the same priority, either may.
func TestTheFirstTableWins(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	g := newGround(t, 0, outside)
	g.load(t, kinds["numbers"].program, strings.Replace(numbers, "PODS", kinds["numbers"].local["8"], 1))
	g.load(t, "nft -f -", `table inet first { chain c { type nat hook prerouting priority -150; ip daddr 203.0.113.10 tcp dport 80 dnat ip to 10.244.9.9:80; }; }`)
	g.lastIs(t, outside, "10.244.9.9:80=1")
	g.load(t, "nft -f -", `delete table inet first`)
	g.lastIs(t, outside, "10.244.2.8:8080=1")
	g.load(t, "nft -f -", `table ip second { chain c { type nat hook prerouting priority -100; ip daddr 203.0.113.10 tcp dport 80 dnat to 10.244.9.9:80; }; }`)
	g.lastIs(t, outside, "10.244.2.8:8080=1,10.244.9.9:80=1")
	g.load(t, "nft -f -", `delete table ip second`)
	g.load(t, "nft -f -", `table ip first { chain c { type nat hook prerouting priority -150; ip daddr 203.0.113.10 accept; }; }`)
	g.load(t, "nft -f -", `table ip after { chain c { type nat hook prerouting priority -50; ip daddr 203.0.113.10 tcp dport 80 dnat to 10.244.9.9:80; }; }`)
	g.load(t, "nft -f -", `delete table ip kube-proxy`)
	g.lastIs(t, outside, "10.244.9.9:80=1")
}

// When more happens than is heard, the record says so, and between when; and what follows is told as before.
func TestWhatWasNotHeardIsTold(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	g := newGround(t, 1, outside)
	rules := func(pods string) string {
		return strings.Replace(numbers, "PODS", kinds["numbers"].local[pods], 1)
	}
	g.load(t, "nft -f -", rules("7,8"))
	before := g.lastIs(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
	g.held.Lock() // who hears the first stops to look at the clock
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
	g.held.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	gap := func(events []reports.Event) bool {
		return slices.ContainsFunc(events, func(e reports.Event) bool {
			return e.Kind == reports.EventLog && e.Node == "node-2" && strings.Contains(e.Text, "is not known")
		})
	}
	g.await(t, "the gap is told", gap)
	g.load(t, "nft -f -", rules("8"))
	if after := g.lastIs(t, outside, "10.244.2.8:8080=1"); after.At <= before.At {
		t.Errorf("%v comes after %v", after.At, before.At)
	}
}

// The twin: however many changes come at once, with room for them nothing is lost, and the last is told.
func TestNothingIsLostWithRoomForIt(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	g := newGround(t, 0, outside)
	for i := range 20 {
		g.load(t, "nft -f -", strings.Replace(numbers, "PODS", kinds["numbers"].local[[]string{"7,8", "8"}[i%2]], 1))
	}
	g.lastIs(t, outside, "10.244.2.8:8080=1")
	events := g.await(t, "", func([]reports.Event) bool { return true })
	for i, e := range events {
		if e.Kind != reports.EventTable || (i > 0 && (e.At < events[i-1].At || e.Attrs["backends"] == events[i-1].Attrs["backends"])) {
			t.Errorf("event %d of %d: %+v", i, len(events), e)
		}
	}
}

// A transaction takes no more room than its end, however large it is.
func TestALargeTransactionIsHeardOnce(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	g := newGround(t, 1, outside)
	g.load(t, "nft -f -", strings.Replace(numbers, "PODS", kinds["numbers"].local["7,8"], 1)+
		"table ip other { chain c {\n"+strings.Repeat("ip daddr 203.0.113.99 counter\n", 200)+"}\n}\n")
	g.lastIs(t, outside, "10.244.2.7:8080=1,10.244.2.8:8080=1")
	g.load(t, "nft -f -", "flush ruleset")
	g.lastIs(t, outside, "")
	if events := g.await(t, "", func([]reports.Event) bool { return true }); len(events) != 2 {
		t.Errorf("%d events, want 2: %+v", len(events), events)
	}
}

// A node whose rules nobody changes is left alone: neither is it looked at, nor is there a timer.
func TestAnIdleNodeIsLeftAlone(t *testing.T) {
	outside := server("203.0.113.10:80", "10.200.0.0/16")
	g := newGround(t, 0, outside)
	g.load(t, "nft -f -", strings.Replace(numbers, "PODS", kinds["numbers"].local["8"], 1))
	g.lastIs(t, outside, "10.244.2.8:8080=1")
	quiet := func() bool {
		before := g.asked.Load()
		time.Sleep(200 * time.Millisecond)
		return g.asked.Load() == before
	}
	for end := time.Now().Add(time.Minute); !quiet(); {
		if time.Now().After(end) {
			t.Fatal("it was looked at again and again for a minute")
		}
	}
}
