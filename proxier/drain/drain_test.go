package drain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

var (
	limits = Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute}
	start  = time.Unix(0, 0)
	one    = Key{kernel.Key{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: kernel.TCP, Port: 80}, netip.MustParseAddrPort("10.244.1.1:80")}
)

func TestTimeIsUpByStatus(t *testing.T) {
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
		l.Put(one, test.status, start)
		if got := l.Expired(l.Entries()[0], start.Add(test.after)); got != test.want {
			t.Errorf("status %d after %v: expired %v, want %v", test.status, test.after, got, test.want)
		}
	}
}

func TestAnotherStatusStartsAnew(t *testing.T) {
	l := NewList(limits)
	l.Put(one, Serving, start)
	late := start.Add(time.Hour)
	l.Put(one, Unlisted, late)
	l.Put(one, Unlisted, late.Add(time.Minute)) // the same again changes nothing
	e := l.Entries()[0]
	if l.Expired(e, late.Add(limits.Unlisted-1)) || !l.Expired(e, late.Add(limits.Unlisted)) {
		t.Errorf("the time does not count from the moment in which the endpoint was gone: %+v", e)
	}
}

// A look at the kernel that began before a real server came back must not delete it.
func TestFinishIsForTheSameGeneration(t *testing.T) {
	l := NewList(limits)
	l.Put(one, Unlisted, start)
	old := l.Entries()[0]
	if !l.Cancel(one) || l.Cancel(one) {
		t.Error("a drain can be cancelled once")
	}
	if l.Finish(old) {
		t.Error("a cancelled drain was finished")
	}
	l.Put(one, Unlisted, start)
	if l.Finish(old) || l.Len() != 1 {
		t.Error("the end of an old drain ended a new one")
	}
	if !l.Finish(l.Entries()[0]) || l.Len() != 0 {
		t.Error("the drain cannot be finished")
	}
}

// Looks at one that drains for long become rare, but not rarer than twelve times the first pause, and none comes after its time is up.
func TestLooksBecomeRare(t *testing.T) {
	l := NewList(Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute, FirstCheck: 5 * time.Second})
	if _, any := l.Next(); any {
		t.Error("an empty list wants a look")
	}
	looks := func(status Status, during time.Duration) (at []time.Duration) {
		l.Cancel(one)
		l.Put(one, status, start)
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
	hour := looks(Serving, time.Hour)
	if len(hour) < 60 || len(hour) > 80 || hour[0] != 5*time.Second || hour[len(hour)-1]-hour[len(hour)-2] != time.Minute {
		t.Errorf("%d looks in an hour, the first after %s: %s", len(hour), hour[0], hour)
	}
	if gone := looks(Unlisted, time.Hour); gone[len(gone)-1] != 5*time.Minute {
		t.Errorf("the last look at one that may stay for 5 minutes is after %s", gone[len(gone)-1])
	}
}

// What begins to drain later does not make what drains already be looked at more often, nor wait for it; and those that are due at
// nearly the same time are looked at together.
func TestEachHasItsOwnPace(t *testing.T) {
	l := NewList(Limits{FirstCheck: 8 * time.Second})
	two := Key{one.Virtual, netip.MustParseAddrPort("10.244.1.2:80")}
	l.Put(one, Serving, start)
	l.Put(two, Serving, start.Add(500*time.Millisecond))
	if due := l.Due(start.Add(8 * time.Second)); len(due) != 2 {
		t.Errorf("%d of two that are due within half a second are looked at", len(due))
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
		t.Errorf("a new one is looked at only %s after it began to drain", next.Sub(late))
	}
	looked := 0
	for at, _ := l.Next(); at.Before(late.Add(time.Minute)); at, _ = l.Next() {
		for _, e := range l.Due(at) {
			if e.Key == one {
				looked++
			}
			l.Checked(e, at)
		}
	}
	if looked > 1 {
		t.Errorf("the old one was looked at %d times in the minute after the new one came", looked)
	}
}
