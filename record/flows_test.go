package record

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFlowsSurviveTheirText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		flows := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Flow {
			source := netip.AddrPortFrom(netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))), rapid.Uint16().Draw(t, "port"))
			return Flow{source, rapid.SampledFrom([]string{"node-1", "node-2", "node-3"}).Draw(t, "node"), time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "at"))}
		})).Draw(rt, "flows")
		text, err := FlowList(flows).MarshalText()
		if err != nil {
			rt.Fatal(err)
		}
		var got FlowList
		if err := got.UnmarshalText(text); err != nil || !slices.Equal(got, flows) {
			rt.Fatalf("%v came back as %v (%v)", flows, got, err)
		}
	})
}

func TestAFiveTupleIsJoinedWithItsOwnConnection(t *testing.T) {
	source := sourceFor(t, 2, 0)
	other := netip.AddrPortFrom(source.Addr(), source.Port()+1)
	const s = time.Second
	log := flowLog{{source, "node-3", 20 * s}, {source, "node-1", 10 * s}, {other, "node-2", 10 * s}}
	log.settle()
	for _, c := range []struct {
		source       netip.AddrPort
		start, total time.Duration
		want, open   string // when each attempt opens a connection, and when they may stay open
	}{
		{source, 10*s - 3*time.Millisecond, s, "node-1", "node-1"},
		{source, 10*s + 4*time.Millisecond, s, "node-1", "node-1"}, // logged in milliseconds
		{other, 10 * s, time.Millisecond, "node-2", "node-2"},
		{source, 19 * s, 1100 * time.Millisecond, "node-3", "node-3"}, // the second SYN came through
		{source, 12 * s, 4 * s, "", "node-1"},                         // never reached it, or goes on
		{source, 21 * s, 4 * s, "", "node-3"},
		{other, 9 * s, time.Millisecond, "", ""},
		{netip.AddrPort{}, 10 * s, s, "", ""},
	} {
		a := Attempt{Source: c.source, Start: c.start, Total: c.total}
		if got, _ := log.find(&a, true); got.Node != c.want {
			t.Errorf("the attempt of %v at %v is joined with %q, want %q", c.source, c.start, got.Node, c.want)
		}
		if got, _ := log.find(&a, false); got.Node != c.open {
			t.Errorf("the attempt of %v at %v on an open connection is joined with %q, want %q", c.source, c.start, got.Node, c.open)
		}
	}
}
