//go:build netns

package balancer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// inject starts a fault and returns when it is active; the channel gets Inject's error.
func (g *testLab) inject(ctx context.Context, f Fault) <-chan error {
	g.t.Helper()
	result := make(chan error, 1)
	go func() { result <- g.b.Inject(ctx, f) }()
	g.await("fault "+f.ID, func() bool {
		select {
		case err := <-result:
			g.t.Fatalf("fault %s: %v", f.ID, err)
		default:
		}
		for _, line := range g.recorder.eventLines(record.KindFault, "id", "state") {
			if strings.HasSuffix(line, " "+f.ID+" begin") {
				return true
			}
		}
		return false
	})
	return result
}

// injectUntil injects a fault that lasts until the returned function is called.
func (g *testLab) injectUntil(f Fault) (end func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f.For = time.Hour
	ended := g.inject(ctx, f)
	return func() {
		g.t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			g.t.Errorf("fault %s, which was ended: %v", f.ID, err)
		}
	}
}

func TestFaults(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	g.awaitNodes("80", everyNode)
	target := netip.AddrPortFrom(vip, 80)
	open, err := g.open("tcp4", source(0), 80, patience)
	g.must(err)
	defer open.Close()

	t.Run("drop", func(t *testing.T) {
		end := g.injectUntil(Fault{ID: "d", Kind: FaultDrop, Target: target})
		if _, err := g.open("tcp4", source(1), 80, 150*time.Millisecond); !isTimeout(err) {
			t.Errorf("a new connection: %v, want a time-out", err)
		}
		if got, err := open.name(); err != nil {
			t.Errorf("an open connection is answered by %q, %v", got, err)
		}
		end()
		if _, err := g.ask(source(2), 80); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	})
	t.Run("refuse one prefix", func(t *testing.T) {
		end := g.injectUntil(Fault{ID: "r", Kind: FaultRefuse, Target: target, Source: netip.MustParsePrefix("10.200.0.0/25")})
		if _, err := g.ask(netip.MustParseAddrPort("10.200.0.5:5000"), 80); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection from the prefix: %v, want refused", err)
		}
		if _, err := g.ask(netip.MustParseAddrPort("10.200.0.129:5000"), 80); err != nil {
			t.Errorf("a new connection from elsewhere: %v", err)
		}
		end()
	})
	t.Run("refuse one node", func(t *testing.T) {
		end := g.injectUntil(Fault{ID: "n", Kind: FaultRefuse, Target: target, Node: "node-2"})
		for i := 100; i < 160; i++ {
			want := picked(source(i), 80, everyNode) == "node-2"
			if _, err := g.ask(source(i), 80); errors.Is(err, syscall.ECONNREFUSED) != want || !want && err != nil {
				t.Errorf("a flow of %s: %v", picked(source(i), 80, everyNode), err)
			}
		}
		end()
	})
	t.Run("reset", func(t *testing.T) {
		end := g.injectUntil(Fault{ID: "x", Kind: FaultReset, Target: target})
		if got, err := open.name(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an open connection: %q, %v, want a reset", got, err)
		}
		f, err := g.open("tcp4", source(200), 80, patience)
		if err != nil {
			t.Fatalf("a new connection does not open: %v", err)
		}
		defer f.Close()
		if _, err := f.name(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a new connection, once open: %v, want a reset", err)
		}
		end()
	})
	t.Run("twice", func(t *testing.T) {
		fault := Fault{ID: "same", Kind: FaultDrop, Target: netip.AddrPortFrom(vip, 443), For: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		end := g.inject(ctx, fault)
		if err := g.b.Inject(t.Context(), fault); err == nil || !strings.Contains(err.Error(), "active") {
			t.Errorf("the same id twice: %v", err)
		}
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Errorf("a fault that is ended early: %v", err)
		}
	})
	t.Run("the end of the balancer ends faults", func(t *testing.T) {
		end := g.inject(t.Context(), Fault{ID: "long", Kind: FaultDrop, Target: target, For: time.Minute})
		g.cancel()
		if err := <-end; err == nil || !strings.Contains(err.Error(), "the balancer has ended") {
			t.Errorf("its error is %v", err)
		}
	})
}

func TestFaultEventsBoundTheFault(t *testing.T) {
	g := newTestLab(t, Config{}, lb("web"))
	for _, size := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		g.recorder.reset()
		began := time.Now()
		g.must(g.b.Inject(t.Context(), Fault{ID: "f", Kind: FaultDrop, Target: netip.AddrPortFrom(vip, 80), For: size,
			Lane: "4", Control: true}))
		took := time.Since(began)
		var found []record.Fault
		var at []time.Duration
		for _, e := range g.recorder.events {
			if b, is := e.Body.(record.Fault); is {
				found, at = append(found, b), append(at, e.At)
			}
		}
		if len(found) != 2 || found[0].State != record.FaultBegin || found[1].State != record.FaultEnd || found[0].From == nil || found[1].Until == nil {
			t.Fatalf("events %+v", found)
		}
		inner, outer := at[1]-at[0], *found[1].Until-*found[0].From
		if inner < size || outer < inner || outer > took {
			t.Errorf("a fault of %s was active for %s to %s, within %s", size, inner, outer, took)
		}
		t.Logf("%s: active for %s to %s", size, inner, outer)
		for _, e := range found {
			if e.Lane != "4" || !e.Control || e.Fault != "drop" || e.ID != "f" {
				t.Errorf("recorded %+v", e)
			}
		}
	}
}

func TestInvalidFaults(t *testing.T) {
	g := newTestLab(t, Config{})
	target := netip.AddrPortFrom(vip, 80)
	for problem, f := range map[string]Fault{
		"its id":                 {Kind: FaultDrop, Target: target, For: 1},
		`kind "slow"`:            {ID: "1", Kind: "slow", Target: target, For: 1},
		"the lab's families":     {ID: "1", Kind: FaultDrop, For: 1},
		"the target's family":    {ID: "1", Kind: FaultDrop, Target: target, For: 1, Source: netip.MustParsePrefix("2001:db8::/64")},
		"give more than 0":       {ID: "1", Kind: FaultDrop, Target: target},
		"only TCP":               {ID: "1", Kind: FaultReset, Protocol: "udp", Target: target, For: 1},
		`no node "node-9"`:       {ID: "1", Kind: FaultDrop, Target: target, For: 1, Node: "node-9"},
		`protocol "sctp" is not`: {ID: "1", Kind: FaultDrop, Protocol: "sctp", Target: target, For: 1},
	} {
		if err := g.b.Inject(t.Context(), f); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%+v: %v, want an error with %q", f, err, problem)
		}
	}
}
