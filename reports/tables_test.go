package reports

import (
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// tablesFor makes the tables of one address from times in ms and node lists; each change takes 2 ms.
func tablesFor(t *testing.T, changes ...any) tables {
	t.Helper()
	var ts tables
	for i := 0; i < len(changes); i += 2 {
		at := time.Duration(changes[i].(int)) * time.Millisecond
		_, table, err := tableOf(Event{At: at, Kind: EventBalancer, Attrs: map[string]string{"address": "203.0.113.10", "port": "80",
			"nodes": changes[i+1].(string), "policy": "sticky", "seed": "7", "fromNs": strconv.FormatInt(int64(at-2*time.Millisecond), 10)}})
		if err != nil {
			t.Fatal(err)
		}
		ts = ts.add(table)
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
		{"during a change, unanswered: the table before it", "999ms", second, "", true, "node-1"},
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
		if got := ts.choose(&a, webAddress, c.local); got.node != c.want {
			t.Errorf("%s (%s): path over %q, want %q", c.name, c.start, got.node, c.want)
		}
	}
}

// A connection that stays open keeps the node that it was given, unless the balancer hashes each packet anew.
func TestALongConnectionKeepsItsNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2")
	l := &lane{protocol: protocolLong}
	a := Attempt{Start: 1500 * time.Millisecond, Source: sourceFor(t, 2, 0), TupleAge: time.Second}
	if got := ts.choose(l.opening(ts, &a), webAddress, false); got.node != "node-1" || got.epoch != 0 {
		t.Errorf("opened while node-1 was in: path over %+v", got)
	}
	opened := a
	opened.TupleAge = 0
	if got := ts.choose(l.opening(ts, &opened), webAddress, false); got.node != "node-2" {
		t.Errorf("opened after node-1 had left: path over %+v", got)
	}
	if got := ts.choose((&lane{protocol: "tcp-new"}).opening(ts, &a), webAddress, false); got.node != "node-2" {
		t.Errorf("a new connection from an old port: path over %+v", got)
	}
	for i := range ts {
		ts[i].sticky = false
	}
	if got := ts.choose(l.opening(ts, &a), webAddress, false); got.node != "node-2" {
		t.Errorf("with rehash: path over %+v", got)
	}
}

// Who answers in place of the right pod may be anywhere: it tells nothing of the way.
func TestAWrongAnswerTellsNoNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2")
	a := Attempt{Start: 999 * time.Millisecond, Source: sourceFor(t, 2, 0), Node: "node-1", Class: Misrouted, Connect: time.Millisecond}
	if got := ts.choose(&a, webAddress, true); got.node != "node-2" {
		t.Errorf("path over %q, want the table's node-2", got.node)
	}
	l := &lane{protocol: protocolSticky, address: webAddress, gap: 10 * time.Millisecond, declared: 100 * time.Millisecond, local: true}
	if got := l.chooseKept(ts, &a); got.node != "node-2" {
		t.Errorf("a flow of datagrams: path over %q, want the table's node-2", got.node)
	}
	o := rolling{seed: 6, fallback: true, rollouts: 1}
	s := o.start(o.lab())
	for i := range s.attempts {
		if at := &s.attempts[i]; at.Seq%100 == 7 {
			at.Class, at.Node = Misrouted, "node-3"
		}
	}
	if err := CheckPaths(s.write(t)); err != nil {
		t.Error(err)
	}
}

func TestWithoutABalancerThereIsNoNode(t *testing.T) {
	a := Attempt{Start: time.Second, Node: "node-1", Source: netip.MustParseAddrPort("10.200.0.1:2000")}
	if got := tables(nil).choose(&a, webAddress, true); got.node != "" {
		t.Errorf("path over %q, want none", got.node)
	}
}

func TestStrangeAddressesHaveNoNode(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2")
	for _, source := range []string{"", "[2001:db8::1]:2000"} {
		a := Attempt{Start: time.Second}
		if source != "" {
			a.Source = netip.MustParseAddrPort(source)
		}
		if got := ts.choose(&a, webAddress, false); got.node != "" {
			t.Errorf("source %q: path over %q, want none", source, got.node)
		}
	}
}

// A balancer that terminates connections does not hash five-tuples; then only the answer tells the node.
func TestATerminatingBalancerIsNotComputed(t *testing.T) {
	_, table, err := tableOf(Event{At: time.Second, Attrs: map[string]string{"address": "203.0.113.10", "port": "80", "nodes": "node-1,node-2", "policy": "roundrobin"}})
	if err != nil {
		t.Fatal(err)
	}
	ts := tables{}.add(table)
	a := Attempt{Start: 2 * time.Second, Node: "node-2", Source: sourceFor(t, 2, 0)}
	if got := ts.choose(&a, webAddress, true); got.node != "node-2" {
		t.Errorf("path over %q, want node-2", got.node)
	}
	if got := ts.choose(&a, webAddress, false); got.node != "" {
		t.Errorf("path over %q, want none", got.node)
	}
}

func TestTenuresAreUnbroken(t *testing.T) {
	ts := tablesFor(t, 10, "node-1", 1000, "node-1,node-2", 2000, "node-2", 3000, "node-1,node-2")
	if a, b := ts.memberSince("node-1", 0), ts.memberSince("node-1", 1); a != b {
		t.Errorf("node-1 stayed, but has tenures %d and %d", a, b)
	}
	if a, b := ts.memberSince("node-1", 1), ts.memberSince("node-1", 3); a == b {
		t.Errorf("node-1 left and came back, but has one tenure %d", a)
	}
	one := ts.tenure("node-1", 0)
	if !one.left || one.until != 2*time.Second {
		t.Errorf("node-1's first tenure is %+v, want one that ends at 2 s", one)
	}
	if two := ts.tenure("node-2", 1); two.left || two.from != 998*time.Millisecond {
		t.Errorf("node-2's tenure is %+v, want one from 998 ms without an end", two)
	}
}

// A Service may have one port number for TCP and for UDP; they are balanced apart.
func TestProtocolsHaveTablesOfTheirOwn(t *testing.T) {
	s := newLab(1)
	s.services[webAddress] = &service{name: "web", seed: 7, local: true}
	s.pod(simPod{name: "web-1", node: "node-1", service: "web", ready: 100 * time.Millisecond})
	s.balance(webAddress, 200*time.Millisecond, "node-1")
	s.event(300*time.Millisecond, EventBalancer, "", "web", "udp", "address", "203.0.113.10", "port", "80", "protocol", "udp", "nodes", "node-2", "policy", "sticky", "seed", "7")
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 10, from: time.Second, to: 2 * time.Second})
	if paths := s.report(t).Lanes[0].Paths; len(paths) != 1 || paths[0].Node != "node-1" {
		t.Errorf("a TCP lane went over %+v", paths)
	}
}
