package drain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

var (
	limits = Limits{Listed: 15 * time.Minute, Gone: 5 * time.Minute}
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
		{Listed, 15*time.Minute - 1, false}, {Listed, 15 * time.Minute, true},
		{Gone, 5*time.Minute - 1, false}, {Gone, 5 * time.Minute, true},
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
	l.Put(one, Gone, late)
	l.Put(one, Gone, late.Add(time.Minute)) // the same again changes nothing
	e := l.Entries()[0]
	if l.Expired(e, late.Add(limits.Gone-1)) || !l.Expired(e, late.Add(limits.Gone)) {
		t.Errorf("the time does not count from the moment in which the endpoint was gone: %+v", e)
	}
}

// A look at the kernel that began before a real server came back must not delete it.
func TestFinishIsForTheSameGeneration(t *testing.T) {
	l := NewList(limits)
	l.Put(one, Gone, start)
	old := l.Entries()[0]
	if !l.Cancel(one) || l.Cancel(one) {
		t.Error("a drain can be cancelled once")
	}
	if l.Finish(old) {
		t.Error("a cancelled drain was finished")
	}
	l.Put(one, Gone, start)
	if l.Finish(old) || l.Len() != 1 {
		t.Error("the end of an old drain ended a new one")
	}
	if !l.Finish(l.Entries()[0]) || l.Len() != 0 {
		t.Error("the drain cannot be finished")
	}
}
