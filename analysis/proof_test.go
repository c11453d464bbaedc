package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
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
		o := recordtest.Rollout{Seed: 11, Fallback: true, Rollouts: 1, NoProof: true}
		s := o.Lab()
		from, to := recordtest.ProofAt+time.Second, recordtest.ProofAt+1500*time.Millisecond
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 1, Node: c.struck, From: from, To: to, Class: c.class})
		for at, state := range map[time.Duration]string{from: "begin", to: "end"} {
			s.Event(at, record.KindFault, c.node, "known", "known "+state, "fault", c.kind, "state", state, "id", "known", "lane", "canary", "control", "true")
		}
		r := reportOf(t, o.Start(s))
		want := KnownFault{Fault: c.kind, Lane: "canary", Node: c.node, Ms: 500, Found: c.found}
		if len(r.DetectionFloor.Faults) != 1 || r.DetectionFloor.Faults[0] != want {
			t.Errorf("a %s that made attempts %s: %+v, want %+v", c.kind, c.class, r.DetectionFloor.Faults, want)
		}
		if missed := r.Verdict == Invalid && strings.Contains(strings.Join(r.Reasons, " "), "was not found"); missed == c.found {
			t.Errorf("a %s that made attempts %s: %s, %q", c.kind, c.class, r.Verdict, r.Reasons)
		}
	}
}
