package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/reports"
)

// bench is two nodes of which the second one has all connections, in a bubble of virtual time.
type bench struct {
	mu     sync.Mutex
	err    error
	asked  int
	events []reports.Event
}

func (b *bench) Event(e reports.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bench) Attempt(reports.Attempt) {}

func (b *bench) asker() *Asker {
	begin := time.Now()
	backend := netip.MustParseAddrPort("10.244.2.7:8080")
	look := func(knows bool) func(Tuple) (netip.AddrPort, bool, error) {
		return func(t Tuple) (netip.AddrPort, bool, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked++
			time.Sleep(100 * time.Microsecond)
			return backend, knows && t.Source.Port() != 7, b.err
		}
	}
	return &Asker{questions: make(chan Question, waiting), record: b, now: func() time.Duration { return time.Since(begin) },
		nodes: []node{{"node-1", look(false)}, {"node-2", look(true)}}}
}

// during runs an asker while test puts questions, and returns what it has told.
func during(t *testing.T, b *bench, test func(a *Asker)) (events []reports.Event) {
	synctest.Test(t, func(t *testing.T) {
		a := b.asker()
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { _ = a.Run(ctx) })
		test(a)
		cancel()
		wait.Wait()
		events = slices.Clone(b.events)
	})
	return events
}

func question(seq uint64, port uint16) Question {
	return Question{Lane: 3, Seq: seq, Tuple: Tuple{Source: netip.AddrPortFrom(netip.MustParseAddr("10.200.1.1"), port), Target: netip.MustParseAddrPort("203.0.113.10:80")}}
}

func TestTheNodeThatHasTheConnectionIsTold(t *testing.T) {
	events := during(t, &bench{}, func(a *Asker) {
		for i, port := range []uint16{1, 7} {
			a.Ask(question(uint64(i), port))
			time.Sleep(time.Second)
		}
	})
	if len(events) != 2 || events[0].Node != "node-2" || events[0].Attrs["backend"] != "10.244.2.7:8080" || events[0].Attrs["lane"] != "3" ||
		events[1].Node != "" || events[1].Attrs["backend"] != "" || events[1].Attrs["seq"] != "1" {
		t.Errorf("%+v", events)
	}
}

// However many attempts fail, the nodes are not kept busy; and the first ones of a burst are asked about.
func TestQuestionsAreFew(t *testing.T) {
	events := during(t, &bench{}, func(a *Asker) {
		for i := range uint64(10_000) {
			a.Ask(question(i, 1))
			time.Sleep(100 * time.Microsecond)
		}
	})
	// Two nodes take 0.2 ms, and 4 ms of leisure follow.
	if n := len(events); n < 100 || n > 250 {
		t.Errorf("%d of 10,000 attempts in a second were asked about", n)
	}
	if events[0].Attrs["seq"] != "0" {
		t.Errorf("the first one was %s", events[0].Attrs["seq"])
	}
}

func TestAKernelThatDoesNotAnswerIsToldOnce(t *testing.T) {
	b := &bench{err: errors.New("operation not supported")}
	events := during(t, b, func(a *Asker) {
		for i := range uint64(3) {
			a.Ask(question(i, 1))
			time.Sleep(time.Second)
		}
	})
	if len(events) != 1 || events[0].Kind != reports.EventLog || b.asked != 1 {
		t.Errorf("%d times asked, told was %+v", b.asked, events)
	}
}
