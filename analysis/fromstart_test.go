package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A loss before the scenario is a fail if the record shows that the subject caused it. Otherwise the run is invalid.
func TestASubjectThatIsFaultyFromTheStartFails(t *testing.T) {
	const at = 10 * time.Second
	short := recordtest.Fault{Lane: 0, From: at, To: at + 15*time.Millisecond, Class: record.ConnectTimeout}
	drop := func(f recordtest.Fault) func(*recordtest.Lab) {
		return func(s *recordtest.Lab) { s.Faults = append(s.Faults, f) }
	}
	wrong := func(backend string) func(*recordtest.Lab) {
		return func(s *recordtest.Lab) {
			for i := range s.Attempts {
				if a := &s.Attempts[i]; a.Lane == 0 && a.Seq == 500 {
					a.Class, a.Backend, a.Node, a.Generation = record.Misrouted, backend, "node-2", "canary"
				}
			}
		}
	}
	direct := func(pod time.Duration) func(*recordtest.Lab) { // the pod's own lane, which fails at an instant
		return func(s *recordtest.Lab) {
			s.Probe(recordtest.Lane{ID: 5, Name: "pod", Target: recordtest.CanaryAddress, Rate: 200, From: recordtest.BaselineAt + 4*time.Millisecond, To: 30 * time.Second, Control: true})
			declared := &s.Events[len(s.Events)-1]
			declared.Attrs["role"], declared.Attrs["pod"], declared.Attrs["target"], declared.Attrs["service"] = record.RolePod, "web-5d9f-aaaa1", "10.244.1.9:8080", "default/web"
			for i := range s.Attempts {
				if a := &s.Attempts[i]; a.Lane == 5 {
					a.Class = record.OK
					if a.Intended > pod && a.Intended < pod+100*time.Millisecond {
						a.Class = record.ConnectTimeout
					}
				}
			}
		}
	}
	for _, c := range []struct {
		name          string
		clock         string
		before, after []func(*recordtest.Lab)
		budget        record.Budget
		want          Verdict
		reason        string
	}{
		{name: "the canary was answered over the same node", before: []func(*recordtest.Lab){drop(short)}, want: Fail, reason: "at the same moments"},
		{name: "by the real clock, too", clock: "real", before: []func(*recordtest.Lab){drop(short)}, want: Fail, reason: "faulty from the start: lane web failed at +10.00"},
		{name: "but a slow pod may be to blame", clock: "real", before: []func(*recordtest.Lab){drop(recordtest.Fault{Lane: 0, From: at, To: short.To, Class: record.ReplyTimeout})},
			want: Invalid, reason: "the baseline is not clean: 2 of 2,000 attempts"},
		{name: "the canary failed over the same node, but not over others",
			before: []func(*recordtest.Lab){drop(recordtest.Fault{AnyLane: true, Node: "node-1", From: at, To: at + 100*time.Millisecond, Class: record.ConnectTimeout})},
			want:   Fail, reason: "nothing but the subject differs on node-1"},
		{name: "everything failed", before: []func(*recordtest.Lab){drop(recordtest.Fault{AnyLane: true, From: at, To: at + 100*time.Millisecond, Class: record.ConnectTimeout})},
			want: Invalid, reason: "--set direct=on also probes the pods"},
		{name: "nothing ever answered", before: []func(*recordtest.Lab){drop(recordtest.Fault{AnyLane: true, To: time.Hour, Class: record.ConnectTimeout})},
			want: Invalid, reason: "the baseline is not clean"},
		{name: "everything failed but the pods", before: []func(*recordtest.Lab){drop(recordtest.Fault{AnyLane: true, From: at, To: at + 100*time.Millisecond, Class: record.ConnectTimeout})},
			after: []func(*recordtest.Lab){direct(time.Hour)}, want: Fail, reason: "at their own addresses at the same moments"},
		{name: "the pods failed, too", before: []func(*recordtest.Lab){drop(short)}, after: []func(*recordtest.Lab){direct(at - 40*time.Millisecond)},
			want: Invalid, reason: "the baseline is not clean"},
		{name: "a pod of another Service", clock: "real", after: []func(*recordtest.Lab){wrong("canary-2")}, want: Fail, reason: "pod canary-2 answered, which does not serve default/web"},
		{name: "an answer of an unknown pod", clock: "real", after: []func(*recordtest.Lab){wrong("stranger")}, want: Invalid, reason: "the baseline is not clean"},
		{name: "within the budget", before: []func(*recordtest.Lab){drop(short)}, budget: record.Budget{Dropped: 2}, want: Pass, reason: "faulty from the start"},
		{name: "beyond the budget", before: []func(*recordtest.Lab){drop(short)}, budget: record.Budget{Dropped: 1}, want: Fail, reason: "faulty from the start"},
		{name: "a guard tripped", before: []func(*recordtest.Lab){drop(short), func(s *recordtest.Lab) { s.Event(at, record.KindGuard, "", "conntrack", "full") }},
			want: Invalid, reason: "a guard of the measurement tripped"},
	} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Run.Budget = c.budget
		if c.clock != "" {
			s.Run.Clock = c.clock
		}
		for _, change := range c.before {
			change(s)
		}
		o.Start(s)
		for _, change := range c.after {
			change(s)
		}
		r := reportOf(t, s)
		if r.Verdict != c.want || !strings.Contains(strings.Join(r.Reasons, "\n"), c.reason) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, r.Verdict, r.Reasons, c.want, c.reason)
		}
	}
}

// A subject that fails for good spoils the proof that goes over its Service. Elsewhere a fault that was not found stays a reason.
func TestAFaultySubjectMaySpoilTheProofOverItsService(t *testing.T) {
	for target, want := range map[string]Verdict{recordtest.WebAddress.String(): Fail, "203.0.113.12:80": Invalid} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: 10 * time.Second, To: time.Hour, Class: record.ConnectTimeout})
		o.Start(s)
		s.Probe(recordtest.Lane{ID: 6, Name: "wrong", Target: recordtest.WebAddress, Rate: 100, From: recordtest.ProofAt + 3*time.Second, To: recordtest.ProofAt + 3200*time.Millisecond, Control: true})
		s.Events[len(s.Events)-1].Attrs["target"] = target
		for state, at := range map[string]time.Duration{"begin": recordtest.ProofAt + 3*time.Second, "end": recordtest.ProofAt + 3200*time.Millisecond} {
			s.Event(at, record.KindFault, "", "proof-3", state, "fault", "misroute", "state", state, "id", "proof-3", "lane", "wrong", "control", "true")
		}
		r := reportOf(t, s)
		if r.Verdict != want {
			t.Errorf("proof over %s: %s %q, want %s", target, r.Verdict, r.Reasons, want)
		}
	}
}

// The table of the node is evidence by itself.
func TestATableWithoutABackendIsTheSubjects(t *testing.T) {
	for state, want := range map[string]Verdict{"absent": Fail, "present": Invalid} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Run.Clock = "real"
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: 10 * time.Second, To: 10200 * time.Millisecond, Class: record.ReplyTimeout})
		backends := map[string]string{"absent": "", "present": "10.244.1.9:8080=1"}[state]
		s.Event(9990*time.Millisecond, record.KindKernelTable, "node-1", "web", "looked", "table", "ipvs", "address", "203.0.113.10", "port", "80", "protocol", "tcp",
			"state", state, "backends", backends)
		s.Event(9990*time.Millisecond, record.KindKernelTable, "node-1", "canary", "looked", "table", "ipvs", "address", "203.0.113.11", "port", "80", "protocol", "tcp",
			"state", state, "backends", backends)
		for _, node := range []string{"node-2", "node-3"} {
			s.Event(9990*time.Millisecond, record.KindKernelTable, node, "canary", "looked", "table", "ipvs", "address", "203.0.113.11", "port", "80", "protocol", "tcp",
				"state", state, "backends", backends)
		}
		r := reportOf(t, o.Start(s))
		if r.Verdict != want || want == Fail && !strings.Contains(strings.Join(r.Reasons, "\n"), "node-1 had no virtual server for 203.0.113.10:80 in IPVS") {
			t.Errorf("%s: %s %q, want %s", state, r.Verdict, r.Reasons, want)
		}
	}
}

// An event before the baseline explains no failure after good attempts.
func TestTheSetUpExplainsNothingLater(t *testing.T) {
	for at, want := range map[time.Duration]string{recordtest.BaselineAt - time.Second: "", recordtest.BaselineAt + time.Second: "endpoint unready"} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Event(at, record.KindEndpoint, "", "default/web", "endpoint is unready", "service", "default/web", "address", "10.244.1.9", "pod", "web-5d9f-aaaa1", "state", "unready")
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: 7 * time.Second, To: 7100 * time.Millisecond, Class: record.Refused})
		r := reportOf(t, o.Start(s))
		if got := r.Lanes[0].Outages[0].Cause.Event; got != want {
			t.Errorf("an endpoint that became unready at %s: the cause is %q, want %q", at, got, want)
		}
	}
}
