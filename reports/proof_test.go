package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Each kind of known fault is found by what it does, on the node that it is on, and told one by one.
func TestKnownFaultsAreToldOneByOne(t *testing.T) {
	for _, c := range []struct {
		kind, node, struck string // where it was said to be, and where it was
		class              record.Class
		found              bool
	}{
		{"drop", "", "", record.Delayed, true},
		{"drop", "", "", record.ConnectTimeout, true},
		{"drop", "", "", record.ReplyTimeout, true},
		{"drop", "", "", record.Refused, false},
		{"drop", "node-2", "node-2", record.Delayed, true},
		{"drop", "node-2", "node-3", record.Delayed, false},
		{"refuse", "", "", record.Refused, true},
		{"refuse", "", "", record.Rejected, true},
		{"refuse", "", "", record.Reset, false},
		{"reset", "", "", record.Reset, true},
		{"reset", "", "", record.Closed, false},
		{"misroute", "", "", record.Misrouted, true},
		{"misroute", "", "", record.Unreachable, false},
	} {
		o := rolling{seed: 11, fallback: true, rollouts: 1, noProof: true}
		s := o.lab()
		from, to := proofAt+time.Second, proofAt+1500*time.Millisecond
		s.faults = append(s.faults, fault{lane: 1, node: c.struck, from: from, to: to, class: c.class})
		for at, state := range map[time.Duration]string{from: "begin", to: "end"} {
			s.event(at, record.KindFault, c.node, "known", "known "+state, "fault", c.kind, "state", state, "id", "known", "lane", "canary", "control", "true")
		}
		r := o.start(s).report(t)
		want := KnownFault{Fault: c.kind, Lane: "canary", Node: c.node, Ms: 500, Found: c.found}
		if len(r.DetectionFloor.Faults) != 1 || r.DetectionFloor.Faults[0] != want {
			t.Errorf("a %s that made attempts %s: %+v, want %+v", c.kind, c.class, r.DetectionFloor.Faults, want)
		}
		if missed := r.Verdict == Invalid && strings.Contains(strings.Join(r.Reasons, " "), "was not found"); missed == c.found {
			t.Errorf("a %s that made attempts %s: %s, %q", c.kind, c.class, r.Verdict, r.Reasons)
		}
	}
}
