package drain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

var (
	limits   = Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute}
	start    = time.Unix(0, 0)
	entryKey = Key{kernel.Key{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: kernel.TCP, Port: 80}, netip.MustParseAddrPort("10.244.1.1:80")}
)

func TestExpiryByStatus(t *testing.T) {
	for _, test := range []struct {
		status Status
		after  time.Duration
		want   bool
	}{
		{Serving, 24 * time.Hour, false},
		{Terminated, 15*time.Minute - 1, false}, {Terminated, 15 * time.Minute, true},
		{Unlisted, 5*time.Minute - 1, false}, {Unlisted, 5 * time.Minute, true},
	} {
		l := NewList(limits)
		l.Put(entryKey, test.status, start)
		if got := l.Expired(l.Entries()[0], start.Add(test.after)); got != test.want {
			t.Errorf("status %d after %v: expired %v, want %v", test.status, test.after, got, test.want)
		}
	}
}

func TestStatusChangeRestartsLimit(t *testing.T) {
	l := NewList(limits)
	l.Put(entryKey, Serving, start)
	late := start.Add(time.Hour)
	l.Put(entryKey, Unlisted, late)
	l.Put(entryKey, Unlisted, late.Add(time.Minute)) // an unchanged status keeps its start
	e := l.Entries()[0]
	if l.Expired(e, late.Add(limits.Unlisted-1)) || !l.Expired(e, late.Add(limits.Unlisted)) {
		t.Errorf("the limit does not count from the change of status: %+v", e)
	}
}

// A check that began before a real server was wanted again must not delete it.
func TestFinishRequiresSameGeneration(t *testing.T) {
	l := NewList(limits)
	l.Put(entryKey, Unlisted, start)
	old := l.Entries()[0]
	if !l.Cancel(entryKey) || l.Cancel(entryKey) {
		t.Error("a drain must be cancellable exactly once")
	}
	if l.Finish(old) {
		t.Error("a cancelled drain was finished")
	}
	l.Put(entryKey, Unlisted, start)
	if l.Finish(old) || l.Len() != 1 {
		t.Error("the end of an old drain removed a new one")
	}
	if !l.Finish(l.Entries()[0]) || l.Len() != 0 {
		t.Error("the drain cannot be finished")
	}
}

// Checks become rarer, at most twelve times the first interval apart, and one takes place when the limit ends.
func TestCheckIntervalsGrow(t *testing.T) {
	l := NewList(Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute, FirstCheck: 5 * time.Second})
	if _, any := l.Next(); any {
		t.Error("an empty list schedules a check")
	}
	checks := func(status Status, during time.Duration) (at []time.Duration) {
		l.Cancel(entryKey)
		l.Put(entryKey, status, start)
		for {
			next, any := l.Next()
			if !any || next.Sub(start) > during {
				return at
			}
			at = append(at, next.Sub(start))
			due := l.Due(next)
			if len(due) != 1 {
				t.Fatalf("at %s %d entries are due", next.Sub(start), len(due))
			}
			if l.Expired(due[0], next) {
				return at
			}
			l.Checked(due[0], next)
		}
	}
	hour := checks(Serving, time.Hour)
	if len(hour) < 60 || len(hour) > 80 || hour[0] != 5*time.Second || hour[len(hour)-1]-hour[len(hour)-2] != time.Minute {
		t.Errorf("%d checks in an hour, the first after %s: %s", len(hour), hour[0], hour)
	}
	if gone := checks(Unlisted, time.Hour); gone[len(gone)-1] != 5*time.Minute {
		t.Errorf("the last check of an entry with a limit of 5 minutes is after %s", gone[len(gone)-1])
	}
}

// Each entry has its own interval, independent of newer entries; entries that are due at nearly the same time are
// checked together.
func TestCheckIntervalsAreIndependent(t *testing.T) {
	l := NewList(Limits{FirstCheck: 8 * time.Second})
	two := Key{entryKey.Virtual, netip.MustParseAddrPort("10.244.1.2:80")}
	l.Put(entryKey, Serving, start)
	l.Put(two, Serving, start.Add(500*time.Millisecond))
	if due := l.Due(start.Add(8 * time.Second)); len(due) != 2 {
		t.Errorf("%d of two entries due within half a second are checked", len(due))
	}
	for at := start.Add(8 * time.Second); at.Before(start.Add(10 * time.Minute)); at, _ = l.Next() {
		for _, e := range l.Due(at) {
			l.Checked(e, at)
		}
	}
	late := start.Add(10 * time.Minute)
	l.Cancel(two)
	l.Put(two, Serving, late)
	if next, _ := l.Next(); next.After(late.Add(8 * time.Second)) {
		t.Errorf("a new entry is checked only %s after it began to drain", next.Sub(late))
	}
	checked := 0
	for at, _ := l.Next(); at.Before(late.Add(time.Minute)); at, _ = l.Next() {
		for _, e := range l.Due(at) {
			if e.Key == entryKey {
				checked++
			}
			l.Checked(e, at)
		}
	}
	if checked > 1 {
		t.Errorf("the old entry was checked %d times in the minute after the new one was added", checked)
	}
}
