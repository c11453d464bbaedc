package record

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A model of what a balancer does with the one flow of a udp-sticky lane, packet by packet: it shares no code with what
// it tests but PickNode.
type flowModel struct{ node string }

func (m *flowModel) packet(source netip.AddrPort, nodes []string) string {
	if !slices.Contains(nodes, m.node) {
		m.node = ""
		if len(nodes) > 0 {
			m.node = nodes[PickNode(source, webAddress, 7, len(nodes))]
		}
	}
	return m.node
}

// changesOf draws tables at least two milliseconds apart, and what tablesFor takes.
func changesOf(t *rapid.T) (at []int, nodes [][]string, made []any) {
	last := 10
	for range rapid.IntRange(1, 8).Draw(t, "tables") {
		some := drawnNodes(t)
		text := ""
		for i, n := range some {
			if i > 0 {
				text += ","
			}
			text += n
		}
		at, nodes, made = append(at, last), append(nodes, some), append(made, last, text)
		last += rapid.IntRange(5, 700).Draw(t, "ms until the next")
	}
	return at, nodes, made
}

// The promise: each datagram of a sticky lane is charged to the node that it went to, whatever the table did before.
func TestAFlowOfDatagramsIsFollowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at, nodes, made := changesOf(rt)
		ts := tablesFor(t, made...)
		gap := time.Duration(rapid.SampledFrom([]int{1, 10, 100}).Draw(rt, "gap, ms")) * time.Millisecond
		source := netip.AddrPortFrom(netip.MustParseAddr("10.200.0.1"), uint16(rapid.IntRange(1, 65535).Draw(rt, "port")))
		l := &DeclaredLane{Lane: Lane{Protocol: ProtocolSticky}, Address: webAddress, Interval: gap, Declared: 20 * time.Millisecond}
		model := &flowModel{}
		for k := range 200 {
			a := Attempt{Start: l.Declared + time.Duration(k)*gap, Source: source, TupleAge: gap}
			i := 0 // the last table that had begun to apply, 2 ms before it was complete
			for i+1 < len(at) && a.Start >= time.Duration(at[i+1]-2)*time.Millisecond {
				i++
			}
			want := model.packet(source, nodes[i])
			got := l.stickyPath(ts, &a)
			if got.Node != want || got.Epoch != i {
				rt.Fatalf("attempt %d at %v: path over %q by table %d, the balancer sent it to %q by table %d (%v)", k, a.Start, got.Node, got.Epoch, want, i, made)
			}
		}
	})
}

// During a change, an answer tells where the datagram went, if pods answer for their own node only.
func TestTheAnswerTellsDuringAChange(t *testing.T) {
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2")
	source := sourceFor(t, 2, 0)
	l := &DeclaredLane{Lane: Lane{Protocol: ProtocolSticky, Local: true}, Address: webAddress, Interval: 10 * time.Millisecond, Declared: 100 * time.Millisecond}
	for answered, want := range map[string]string{"node-1": "node-1", "node-2": "node-2", "": "node-2"} {
		a := Attempt{Start: 999 * time.Millisecond, Source: source, Node: answered, TupleAge: time.Millisecond}
		if got := l.stickyPath(ts, &a); got.Node != want {
			t.Errorf("answered by %q: path over %q, want %q", answered, got.Node, want)
		}
	}
}

// A kept HTTP connection stays where it was opened, also beside others and beyond its node's time in the table.
func TestAKeptConnectionKeepsItsNode(t *testing.T) {
	const ms = time.Millisecond
	ts := tablesFor(t, 10, "node-1,node-2", 1000, "node-2", 2000, "node-1,node-2")
	one, two := sourceFor(t, 2, 0), sourceFor(t, 2, 1)
	a := NewPaths()
	l := &DeclaredLane{Lane: Lane{Protocol: ProtocolReuse}, Address: webAddress, Interval: 10 * ms}
	a.members[l.Frontend()] = ts
	for i, c := range []struct {
		start, age time.Duration
		source     netip.AddrPort
		want       string
	}{
		{500 * ms, 0, one, "node-1"},         // opened
		{510 * ms, 10 * ms, one, "node-1"},   // kept
		{511 * ms, 0, two, "node-2"},         // another one beside it
		{1500 * ms, 990 * ms, one, "node-1"}, // node-1 is out: the connection is not
		{1600 * ms, 100 * ms, one, "node-1"},
		{1700 * ms, 0, one, "node-2"},         // opened anew with the same five-tuple
		{2500 * ms, 1900 * ms, one, "node-1"}, // and again: nothing was sent on it 1.9 s before
		{2510 * ms, 10 * ms, one, "node-1"},
	} {
		at := Attempt{Start: c.start, Source: c.source, TupleAge: c.age}
		if got := a.Path(l, &at); got.Node != c.want {
			t.Errorf("attempt %d: path over %q, want %q", i, got.Node, c.want)
		}
	}
	for i := range ts {
		ts[i].sticky = false
	}
	at := Attempt{Start: 1500 * ms, Source: one, TupleAge: 10 * ms}
	if got := a.Path(l, &at); got.Node != "node-2" {
		t.Errorf("with rehash: path over %q, want node-2", got.Node)
	}
}

// drawnNodes draws some of three nodes, in order.
func drawnNodes(t *rapid.T) []string {
	some := rapid.SliceOfN(rapid.SampledFrom([]string{"node-1", "node-2", "node-3"}), 0, 3).Draw(t, "nodes")
	slices.Sort(some)
	return slices.Compact(some)
}
