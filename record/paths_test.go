package record

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

var webAddress = netip.MustParseAddrPort("203.0.113.10:80")

// tablesFor makes the tables of one address from times in ms and node lists; each change takes 2 ms.
func tablesFor(t *testing.T, changes ...any) Memberships {
	t.Helper()
	var ts Memberships
	for i := 0; i < len(changes); i += 2 {
		at := time.Duration(changes[i].(int)) * time.Millisecond
		var nodes []string
		if text := changes[i+1].(string); text != "" {
			nodes = strings.Split(text, ",")
		}
		ts = ts.add(membersOf(at, Membership{Nodes: nodes, Policy: BalancerSticky, Seed: new(uint32(7)), From: new(at - 2*time.Millisecond)}))
	}
	return ts
}

// sourceFor finds a client's end that the balancer sends to the node out of n.
func sourceFor(t *testing.T, n, index int) netip.AddrPort {
	t.Helper()
	for port := uint16(2000); port < 3000; port++ {
		source := netip.AddrPortFrom(netip.MustParseAddr("10.200.0.1"), port)
		if PickNode(source, webAddress, 7, n) == index {
			return source
		}
	}
	t.Fatalf("no port leads to node %d of %d", index, n)
	return netip.AddrPort{}
}

func TestThePathOfAnAttempt(t *testing.T) {
	ts := tablesFor(t, 10, "node-1", 1000, "node-1,node-2", 2000, "node-2", 3000, "")
	second := sourceFor(t, 2, 1) // node-2 while both are in
	first := sourceFor(t, 2, 0)
	for _, c := range []struct {
		name   string
		start  string
		source netip.AddrPort
		answer string
		local  bool
		want   string
	}{
		{"before the balancer knew the address", "5ms", second, "", true, ""},
		{"before the balancer knew the address, though answered", "5ms", second, "node-1", true, ""},
		{"one node", "500ms", second, "", true, "node-1"},
		{"two nodes, by the hash", "1500ms", second, "", true, "node-2"},
		{"two nodes, by the hash", "1500ms", first, "", true, "node-1"},
		{"the hash holds against an answer from elsewhere", "1500ms", first, "node-2", true, "node-1"},
		{"while a node is added, unanswered: the table after it", "999ms", second, "", true, "node-2"},
		{"while a node that fails is taken out, unanswered: its own", "1999ms", first, "", true, "node-1"},
		{"during a change, answered by the node of before", "999ms", second, "node-1", true, "node-1"},
		{"during a change, answered, but pods answer for other nodes too", "999ms", second, "node-1", false, "node-2"},
		{"just before a change that it may have met, unanswered", "997500us", second, "", true, "node-1"},
		{"just before a change that it may have met, answered", "997500us", second, "node-2", true, "node-2"},
		{"no node in the table", "3500ms", second, "", true, ""},
	} {
		start, err := time.ParseDuration(c.start)
		if err != nil {
			t.Fatal(err)
		}
		a := Attempt{Start: start, Source: c.source, Node: c.answer, Total: time.Millisecond}
		if c.answer != "" {
			a.Connect = 800 * time.Microsecond
		}
		if got := ts.choose(&a, webAddress, c.local); got.Node != c.want {
			t.Errorf("%s (%s): path over %q, want %q", c.name, c.start, got.Node, c.want)
		}
	}
}

// A connection that stays open keeps the node that it was given, unless the balancer hashes each packet anew.
func TestALongConnectionKeepsItsNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2")
	l := &DeclaredLane{Lane: Lane{Protocol: ProtocolLong}}
	a := Attempt{Start: 1500 * time.Millisecond, Source: sourceFor(t, 2, 0), TupleAge: time.Second}
	if got := ts.choose(l.opening(ts, &a), webAddress, false); got.Node != "node-1" || got.Epoch != 0 {
		t.Errorf("opened while node-1 was in: path over %+v", got)
	}
	opened := a
	opened.TupleAge = 0
	if got := ts.choose(l.opening(ts, &opened), webAddress, false); got.Node != "node-2" {
		t.Errorf("opened after node-1 had left: path over %+v", got)
	}
	if got := ts.choose((&DeclaredLane{Lane: Lane{Protocol: "tcp-new"}}).opening(ts, &a), webAddress, false); got.Node != "node-2" {
		t.Errorf("a new connection from an old port: path over %+v", got)
	}
	for i := range ts {
		ts[i].sticky = false
	}
	if got := ts.choose(l.opening(ts, &a), webAddress, false); got.Node != "node-2" {
		t.Errorf("with rehash: path over %+v", got)
	}
}

// Who answers in place of the right pod may be anywhere: it tells nothing of the way.
func TestAWrongAnswerTellsNoNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2")
	a := Attempt{Start: 999 * time.Millisecond, Source: sourceFor(t, 2, 0), Node: "node-1", Class: Misrouted, Connect: time.Millisecond}
	if got := ts.choose(&a, webAddress, true); got.Node != "node-2" {
		t.Errorf("path over %q, want the table's node-2", got.Node)
	}
	l := &DeclaredLane{Lane: Lane{Protocol: ProtocolSticky, Local: true}, Address: webAddress, Interval: 10 * time.Millisecond, Declared: 100 * time.Millisecond}
	if got := l.stickyPath(ts, &a); got.Node != "node-2" {
		t.Errorf("a flow of datagrams: path over %q, want the table's node-2", got.Node)
	}
}

// A balancer that chooses by the client's address alone gives each port of a client the same node.
func TestTheClientsAddressAloneDecides(t *testing.T) {
	seed := uint32(7)
	ts := Memberships{}.add(membersOf(time.Second, Membership{Nodes: []string{"node-1", "node-2", "node-3"}, Policy: BalancerSticky, Seed: &seed}))
	alone := Memberships{}.add(membersOf(time.Second, Membership{Nodes: []string{"node-1", "node-2", "node-3"}, Policy: BalancerSticky, Seed: &seed, ByClient: true}))
	seen, byClient := map[string]bool{}, map[string]bool{}
	for port := range uint16(40) {
		a := Attempt{Start: 2 * time.Second, Source: netip.AddrPortFrom(netip.MustParseAddr("10.200.0.1"), 2000+port)}
		seen[ts.choose(&a, webAddress, false).Node], byClient[alone.choose(&a, webAddress, false).Node] = true, true
	}
	if len(byClient) != 1 || byClient[""] || len(seen) != 3 {
		t.Errorf("by the client's address: nodes %v; by the five-tuple: %v", byClient, seen)
	}
}

func TestWithoutABalancerThereIsNoNode(t *testing.T) {
	a := Attempt{Start: time.Second, Node: "node-1", Source: netip.MustParseAddrPort("10.200.0.1:2000")}
	if got := Memberships(nil).choose(&a, webAddress, true); got.Node != "" {
		t.Errorf("path over %q, want none", got.Node)
	}
}

func TestStrangeAddressesHaveNoNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2")
	for _, source := range []string{"", "[2001:db8::1]:2000"} {
		a := Attempt{Start: time.Second}
		if source != "" {
			a.Source = netip.MustParseAddrPort(source)
		}
		if got := ts.choose(&a, webAddress, false); got.Node != "" {
			t.Errorf("source %q: path over %q, want none", source, got.Node)
		}
	}
}

// A balancer that terminates connections does not hash five-tuples; then only the answer tells the node.
func TestATerminatingBalancerIsNotComputed(t *testing.T) {
	ts := Memberships{}.add(membersOf(time.Second, Membership{Nodes: []string{"node-1", "node-2"}, Policy: BalancerRoundRobin}))
	a := Attempt{Start: 2 * time.Second, Node: "node-2", Source: sourceFor(t, 2, 0)}
	if got := ts.choose(&a, webAddress, true); got.Node != "node-2" {
		t.Errorf("path over %q, want node-2", got.Node)
	}
	if got := ts.choose(&a, webAddress, false); got.Node != "" {
		t.Errorf("path over %q, want none", got.Node)
	}
}

func TestTenuresAreUnbroken(t *testing.T) {
	ts := tablesFor(t, 10, "node-1", 1000, "node-1,node-2", 2000, "node-2", 3000, "node-1,node-2")
	if a, b := ts.MemberSince("node-1", 0), ts.MemberSince("node-1", 1); a != b {
		t.Errorf("node-1 stayed, but has tenures %d and %d", a, b)
	}
	if a, b := ts.MemberSince("node-1", 1), ts.MemberSince("node-1", 3); a == b {
		t.Errorf("node-1 left and came back, but has one tenure %d", a)
	}
	one := ts.Tenure("node-1", 0)
	if !one.Left || one.Until != 2*time.Second {
		t.Errorf("node-1's first tenure is %+v, want one that ends at 2 s", one)
	}
	if two := ts.Tenure("node-2", 1); two.Left || two.From != 998*time.Millisecond {
		t.Errorf("node-2's tenure is %+v, want one from 998 ms without an end", two)
	}
}
