//go:build linux

package observers

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/record"
)

// fakeConntrack is two nodes, the second of which has all connections, in a bubble of virtual time.
type fakeConntrack struct {
	mu      sync.Mutex
	err     error
	lookups int
	events  []record.Event
}

func (b *fakeConntrack) Event(e record.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *fakeConntrack) Attempt(record.Attempt) {}

func (b *fakeConntrack) conntrack() *Conntrack {
	begin := time.Now()
	backend := netip.MustParseAddrPort("10.244.2.7:8080")
	lookUp := func(has bool) func(Tuple) (netip.AddrPort, bool, error) {
		return func(t Tuple) (netip.AddrPort, bool, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lookups++
			time.Sleep(100 * time.Microsecond)
			return backend, has && t.Source.Port() != 7, b.err
		}
	}
	return &Conntrack{queries: make(chan ConntrackQuery, maxConntrackQueries), record: b, now: func() time.Duration { return time.Since(begin) },
		nodes: []conntrackNode{{"node-1", lookUp(false)}, {"node-2", lookUp(true)}}}
}

// eventsDuring runs a Conntrack while test enqueues queries, and returns the recorded events.
func eventsDuring(t *testing.T, b *fakeConntrack, test func(c *Conntrack)) (events []record.Event) {
	synctest.Test(t, func(t *testing.T) {
		c := b.conntrack()
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { _ = c.Run(ctx) })
		test(c)
		cancel()
		wait.Wait()
		events = slices.Clone(b.events)
	})
	return events
}

func query(seq uint64, port uint16) ConntrackQuery {
	return ConntrackQuery{Lane: 3, Seq: seq, Tuple: Tuple{Source: netip.AddrPortFrom(netip.MustParseAddr("10.200.1.1"), port), Target: netip.MustParseAddrPort("203.0.113.10:80")}}
}

func TestNodeOfConnectionIsRecorded(t *testing.T) {
	events := eventsDuring(t, &fakeConntrack{}, func(c *Conntrack) {
		for i, port := range []uint16{1, 7} {
			c.Enqueue(query(uint64(i), port))
			time.Sleep(time.Second)
		}
	})
	if len(events) != 2 || events[0].Node != "node-2" || events[1].Node != "" ||
		events[0].Body != (record.Choice{Lane: 3, Backend: netip.MustParseAddrPort("10.244.2.7:8080")}) || events[1].Body != (record.Choice{Lane: 3, Seq: 1}) {
		t.Errorf("%+v", events)
	}
}

// The time of lookups is bounded however many attempts fail, and the first of a burst is looked up.
func TestLookupsAreBounded(t *testing.T) {
	events := eventsDuring(t, &fakeConntrack{}, func(c *Conntrack) {
		for i := range uint64(10_000) {
			c.Enqueue(query(i, 1))
			time.Sleep(100 * time.Microsecond)
		}
	})
	// Two nodes take 0.2 ms, and 4 ms of rest follow.
	if n := len(events); n < 100 || n > 250 {
		t.Errorf("%d of 10,000 attempts in a second were looked up", n)
	}
	if seq := events[0].Body.(record.Choice).Seq; seq != 0 {
		t.Errorf("the first event is of attempt %d", seq)
	}
}

func TestFailingLookupIsRecordedOnce(t *testing.T) {
	b := &fakeConntrack{err: errors.New("operation not supported")}
	events := eventsDuring(t, b, func(c *Conntrack) {
		for i := range uint64(3) {
			c.Enqueue(query(i, 1))
			time.Sleep(time.Second)
		}
	})
	if len(events) != 1 || events[0].Kind() != record.KindLog || b.lookups != 1 {
		t.Errorf("%d lookups recorded %+v", b.lookups, events)
	}
}
