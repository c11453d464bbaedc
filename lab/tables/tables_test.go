package tables

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/reports"
)

var (
	web  = Server{Address: netip.MustParseAddrPort("203.0.113.10:80")}
	pod  = netip.MustParseAddrPort("10.244.2.7:8080")
	next = netip.MustParseAddrPort("10.244.2.8:8080")
)

// bench is one watched node whose table the test writes, in a bubble of virtual time.
type bench struct {
	mu     sync.Mutex
	table  Table
	err    error
	takes  time.Duration
	looks  []time.Duration
	events []reports.Event
	begin  time.Time
	*Watcher
}

func (b *bench) Event(e reports.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bench) Attempt(reports.Attempt) {}

func (b *bench) now() time.Duration { return time.Since(b.begin) }

func (b *bench) set(t Table) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = t
}

func (b *bench) look() (Table, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks = append(b.looks, b.now())
	if b.takes > 0 {
		time.Sleep(b.takes)
	}
	return b.table, b.err
}

// told are the events so far, and how often the node was looked at.
func (b *bench) told() ([]reports.Event, int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events), len(b.looks)
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{begin: time.Now(), table: Table{web: {pod: 1}}}
		b.Watcher = &Watcher{nodes: []*watched{watch("node-2", tableIPVS, b.look, b, b.now)}}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { _ = b.Run(ctx) })
		defer wait.Wait()
		defer cancel()
		test(t, b)
	})
}

// The bounds that a change is told with hold its true instant, however late after the event it comes.
func TestChangesAreToldWithTheirBounds(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 70 * time.Millisecond, 900 * time.Millisecond, 9 * time.Second} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.Happened(reports.EventPod)
			time.Sleep(time.Minute)
			b.Happened(reports.EventEndpoint)
			time.Sleep(late)
			true := b.now()
			b.set(Table{web: {pod: 0, next: 1}})
			time.Sleep(time.Minute)
			events, _ := b.told()
			if len(events) != 2 {
				t.Fatalf("%v late: %d events were told, want the first look's and the change", late, len(events))
			}
			first, change := events[0], events[1]
			if first.Attrs["fromNs"] != "" || first.Attrs["backends"] != "10.244.2.7:8080=1" || first.Node != "node-2" {
				t.Errorf("the first look told %+v", first)
			}
			from, err := strconv.ParseInt(change.Attrs["fromNs"], 10, 64)
			if err != nil || time.Duration(from) > true || change.At < true || change.Attrs["backends"] != "10.244.2.7:8080=0,10.244.2.8:8080=1" {
				t.Errorf("%v late: a change at %v is told as %+v (%v)", late, true, change, err)
			}
			if wide := change.At - time.Duration(from); wide > max(10*time.Millisecond, 2*late) {
				t.Errorf("%v late: the bounds are %v apart", late, wide)
			}
		})
	}
}

// What is gone is told, too, and that there are no real servers.
func TestAbsenceIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, table := range []Table{{web: {pod: 1}}, {web: {}}, {}} {
			b.set(table)
			b.Happened(reports.EventProxy)
			time.Sleep(time.Minute)
		}
		events, _ := b.told()
		if len(events) != 3 || events[1].Attrs["state"] != "present" || events[1].Attrs["backends"] != "" || events[2].Attrs["state"] != "absent" {
			t.Errorf("%+v", events)
		}
	})
}

// A quiet lab is left alone; a busy one, and one whose attempts fail without end, are looked at a bounded number of times.
func TestLooksAreFew(t *testing.T) {
	looks := func(during func(b *bench)) (n int) {
		inBubble(t, func(_ *testing.T, b *bench) {
			during(b)
			_, n = b.told()
		})
		return n
	}
	if n := looks(func(b *bench) { time.Sleep(time.Hour); b.Happened(reports.EventHealth); time.Sleep(time.Hour) }); n != 0 {
		t.Errorf("%d looks in two quiet hours", n)
	}
	if n := looks(func(b *bench) { b.Happened(reports.EventPod); time.Sleep(time.Hour) }); n != len(pauses) {
		t.Errorf("%d looks after one event, want %d", n, len(pauses))
	}
	quiet := func(b *bench) { b.quiet.Store(true); b.Happened(reports.EventPod); time.Sleep(time.Hour) }
	if n := looks(quiet); n != 0 {
		t.Errorf("%d looks after an event of a quiet lab", n)
	}
	alarmed := func(b *bench) {
		b.quiet.Store(true)
		b.Failed()
		time.Sleep(time.Hour)
		b.Happened(reports.EventProxy)
		time.Sleep(time.Hour)
	}
	if n := looks(alarmed); n <= len(pauses) {
		t.Errorf("%d looks after a failure and, an hour later, an event: those after the event are missing", n)
	}
	failing := func(b *bench) {
		for range 1000 {
			b.Failed()
			time.Sleep(10 * time.Millisecond)
		}
	}
	if n := looks(failing); n < 50 || n > 110 {
		t.Errorf("%d looks in 10 s of failures", n)
	}
	busy := func(b *bench) {
		for range 1000 {
			b.Happened(reports.EventPod)
			time.Sleep(time.Millisecond)
		}
	}
	if n := looks(busy); n < 50 || n > 210 {
		t.Errorf("%d looks in a second with an event in each millisecond", n)
	}
	if n := looks(func(b *bench) { b.takes = 5 * time.Millisecond; busy(b) }); n < 5 || n > 11 {
		t.Errorf("%d looks of 5 ms each in a second with an event in each millisecond", n)
	}
}

func TestATableThatCannotBeReadIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.err = errors.New("no such device")
		for range 3 {
			b.Happened(reports.EventPod)
			time.Sleep(time.Minute)
		}
		events, looks := b.told()
		if len(events) != 1 || events[0].Kind != reports.EventLog || looks != 1 {
			t.Errorf("%d looks told %+v", looks, events)
		}
	})
}
