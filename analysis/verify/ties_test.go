package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// An ICMP error just before the deadline of a connection, of which the record says that it timed out.
func TestErrorsNearADeadlineAreTies(t *testing.T) {
	for name, c := range map[string]struct {
		before time.Duration
		ties   int
	}{"2 ms before": {2 * time.Millisecond, 1}, "30 ms before": {30 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			s := losing()
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Class == record.ConnectTimeout })
			w, a := captured(t, s), &s.Attempts[i]
			dial := 3 * time.Second
			w.icmp(a.Start+10*time.Microsecond+dial-c.before, a.Source, recordtest.WebAddress, 100_000*uint32(i+1), 1)
			r := verified(t, s, w.capture(0))
			if r.Lanes[0].Ties != c.ties || r.Agrees() != (c.ties == 1) {
				t.Errorf("%d ties and %v, want %d", r.Lanes[0].Ties, r.Findings, c.ties)
			}
		})
	}
}

// While the members change, an attempt may go over its old node or its new one.
func TestPathsDuringAChangeOfMembersAreTies(t *testing.T) {
	for name, c := range map[string]struct {
		from, to time.Duration // attempts that start between them go over their old nodes, relative to the change
		agrees   bool
	}{"during the change": {-50 * time.Millisecond, 50 * time.Millisecond, true}, "after the change": {50 * time.Millisecond, time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			s, w := movingMembers(t), newWire(t, recordtest.NodeNames...)
			for i := range s.Attempts {
				a, at := &s.Attempts[i], s.Attempts[i].Start
				if since := at - memberChange; c.from < since && since < c.to {
					at = memberChange - time.Second
				}
				w.connect(a, recordtest.WebAddress, s.Services[recordtest.WebAddress].Choose(a.Source, recordtest.WebAddress, at))
			}
			r := verified(t, s, w.capture(0))
			if r.Agrees() != c.agrees || c.agrees && r.Lanes[0].Ties == 0 {
				t.Errorf("%d ties and %.1000v", r.Lanes[0].Ties, r.Findings)
			}
		})
	}
}

const memberChange = 40 * time.Second

// movingMembers is a lab whose balancer has one node less from memberChange on. The change takes 100 ms.
func movingMembers(t *testing.T) *recordtest.Lab {
	t.Helper()
	s := recordtest.DropOnNode2(false)
	s.Faults, s.Moment = nil, 50*time.Millisecond
	s.Balance(recordtest.WebAddress, memberChange, recordtest.NodeNames[1:]...)
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 100, From: 5 * time.Second, To: 60 * time.Second})
	return s
}
