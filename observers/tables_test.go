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

var (
	web  = ServiceAddress{Address: netip.MustParseAddrPort("203.0.113.10:80")}
	pod  = netip.MustParseAddrPort("10.244.2.7:8080")
	next = netip.MustParseAddrPort("10.244.2.8:8080")
)

// fakeIPVS is a node whose IPVS table the test writes, in a bubble of virtual time.
type fakeIPVS struct {
	mu     sync.Mutex
	table  backendTable
	err    error
	takes  time.Duration // of each read
	reads  int
	events []record.Event
	begin  time.Time
	*Tables
}

func (b *fakeIPVS) Event(e record.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *fakeIPVS) Attempt(record.Attempt) {}

func (b *fakeIPVS) now() time.Duration { return time.Since(b.begin) }

func (b *fakeIPVS) set(t backendTable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = t
}

// readTable returns the part of the table that is about the addresses.
func (b *fakeIPVS) readTable(addresses []ServiceAddress) (backendTable, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.takes > 0 {
		time.Sleep(b.takes)
	}
	found := backendTable{}
	for s, weights := range b.table {
		if slices.Contains(addresses, s) {
			found[s] = weights
		}
	}
	return found, b.err
}

// recorded returns the events and the number of reads so far.
func (b *fakeIPVS) recorded() ([]record.Event, int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events), b.reads
}

func inBubble(t *testing.T, test func(t *testing.T, b *fakeIPVS)) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeIPVS{begin: time.Now(), table: backendTable{web: {pod: 1}}}
		b.Tables = &Tables{addresses: []ServiceAddress{web}}
		b.polled = []*poller{newPoller("node-2", record.TableIPVS, b.watched, b.readTable, b, b.now)}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { _ = b.Run(ctx) })
		defer wait.Wait()
		defer cancel()
		test(t, b)
	})
}

// The bounds of a change contain its instant, however late after the event it is.
func TestChangesHaveBounds(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 70 * time.Millisecond, 900 * time.Millisecond, 9 * time.Second} {
		inBubble(t, func(t *testing.T, b *fakeIPVS) {
			b.EventRecorded(record.KindPod)
			time.Sleep(time.Minute)
			b.EventRecorded(record.KindEndpoint)
			time.Sleep(late)
			true := b.now()
			b.set(backendTable{web: {pod: 0, next: 1}})
			time.Sleep(time.Minute)
			events, _ := b.recorded()
			if len(events) != 2 {
				t.Fatalf("%v late: %d events, want that of the first read and the change", late, len(events))
			}
			first, change := events[0], events[1]
			if body := tableOf(first); body.From != nil || body.Backends.String() != "10.244.2.7:8080=1" || first.Node != "node-2" {
				t.Errorf("the first read recorded %+v", first)
			}
			from := tableOf(change).From
			if from == nil || *from > true || change.At < true || tableOf(change).Backends.String() != "10.244.2.7:8080=0,10.244.2.8:8080=1" {
				t.Fatalf("%v late: a change at %v is recorded as %+v", late, true, change)
			}
			if wide := change.At - *from; wide > max(10*time.Millisecond, 2*late) {
				t.Errorf("%v late: the bounds are %v apart", late, wide)
			}
		})
	}
}

// The first look at an address that is watched later is no change, although the table was read before.
func TestFirstLookAtALaterAddressIsNoChange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fakeIPVS) {
		late := web
		late.UDP = true
		b.set(backendTable{web: {pod: 1}, late: {pod: 1}})
		b.EventRecorded(record.KindPod)
		time.Sleep(time.Minute)
		b.Watch(late)
		time.Sleep(time.Minute)
		b.set(backendTable{web: {pod: 1}, late: {next: 1}})
		b.EventRecorded(record.KindPod)
		time.Sleep(time.Minute)
		events, _ := b.recorded()
		if len(events) != 3 {
			t.Fatalf("%d events, want the first looks at both addresses and a change", len(events))
		}
		if tableOf(events[0]).From != nil || tableOf(events[1]).From != nil || tableOf(events[2]).From == nil {
			t.Errorf("%+v", events)
		}
	})
}

// An absent virtual server and one without real servers are recorded.
func TestAbsenceIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fakeIPVS) {
		for _, table := range []backendTable{{web: {pod: 1}}, {web: {}}, {}} {
			b.set(table)
			b.EventRecorded(record.KindProxy)
			time.Sleep(time.Minute)
		}
		events, _ := b.recorded()
		if len(events) != 3 || tableOf(events[1]).State != record.TablePresent || len(tableOf(events[1]).Backends) != 0 || tableOf(events[2]).State != record.TableAbsent {
			t.Errorf("%+v", events)
		}
	})
}

// An idle lab is not read. A busy lab, and one whose attempts keep failing, is read a bounded number of times.
func TestIPVSReadsAreBounded(t *testing.T) {
	reads := func(during func(b *fakeIPVS)) (n int) {
		inBubble(t, func(_ *testing.T, b *fakeIPVS) {
			during(b)
			_, n = b.recorded()
		})
		return n
	}
	if n := reads(func(b *fakeIPVS) {
		time.Sleep(time.Hour)
		b.EventRecorded(record.KindHealthCheck)
		time.Sleep(time.Hour)
	}); n != 0 {
		t.Errorf("%d reads in two idle hours", n)
	}
	if n := reads(func(b *fakeIPVS) { b.EventRecorded(record.KindPod); time.Sleep(time.Hour) }); n != len(pauses) {
		t.Errorf("%d reads after one event, want %d", n, len(pauses))
	}
	quiet := func(b *fakeIPVS) { b.ipvsIdle.Store(true); b.EventRecorded(record.KindPod); time.Sleep(time.Hour) }
	if n := reads(quiet); n != 0 {
		t.Errorf("%d reads after an event before the first failure", n)
	}
	alarmed := func(b *fakeIPVS) {
		b.ipvsIdle.Store(true)
		b.AttemptFailed()
		time.Sleep(time.Hour)
		b.EventRecorded(record.KindProxy)
		time.Sleep(time.Hour)
	}
	if n := reads(alarmed); n <= len(pauses) {
		t.Errorf("%d reads after a failure and, an hour later, an event: those after the event are missing", n)
	}
	failing := func(b *fakeIPVS) {
		for range 1000 {
			b.AttemptFailed()
			time.Sleep(10 * time.Millisecond)
		}
	}
	if n := reads(failing); n < 50 || n > 110 {
		t.Errorf("%d reads in 10 s of failures", n)
	}
	busy := func(b *fakeIPVS) {
		for range 1000 {
			b.EventRecorded(record.KindPod)
			time.Sleep(time.Millisecond)
		}
	}
	if n := reads(busy); n < 50 || n > 210 {
		t.Errorf("%d reads in a second with an event in each millisecond", n)
	}
	if n := reads(func(b *fakeIPVS) { b.takes = 5 * time.Millisecond; busy(b) }); n < 5 || n > 11 {
		t.Errorf("%d reads of 5 ms each in a second with an event in each millisecond", n)
	}
}

func TestUnreadableTableIsRecordedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *fakeIPVS) {
		b.err = errors.New("no such device")
		for range 3 {
			b.EventRecorded(record.KindPod)
			time.Sleep(time.Minute)
		}
		events, reads := b.recorded()
		if len(events) != 2 || events[0].Kind() != record.KindLog || tableOf(events[1]).State != record.TableUnread || reads != 1 {
			t.Errorf("%d reads recorded %+v", reads, events)
		}
	})
}

// tableOf is the body of an event about a kernel table; zero for another event.
func tableOf(e record.Event) record.KernelTable {
	body, _ := e.Body.(record.KernelTable)
	return body
}
