package analysis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// demand makes a phase of the record demand something.
func demand(s *recordtest.Lab, phase string, attrs map[string]string) {
	for i := range s.Events {
		if e := &s.Events[i]; e.Kind == record.KindPhase && e.Object == phase {
			e.Attrs = attrs
		}
	}
}

// A pass needs attempts in each phase and on each path, close enough to meet the loss that the scenario can cause.
func TestAPassNeedsEnoughAttempts(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     float64
		baseline map[string]string
		scenario map[string]string
		want     Verdict
		reason   string
	}{
		{"enough", 100, map[string]string{"attempts": "5"}, map[string]string{"attempts": "5", "lossMs": "15000", "disturbs": "true"}, Pass, ""},
		{"enough at a low rate", 1, map[string]string{"attempts": "5"}, map[string]string{"attempts": "5", "lossMs": "15000", "disturbs": "true"}, Pass, ""},
		{"an outage between two attempts", 0.1, nil, map[string]string{"lossMs": "15000"}, Invalid, "a rate of 0.4 per second would suffice"},
		{"the rate that would suffice", 0.4, nil, map[string]string{"lossMs": "15000"}, Pass, ""},
		{"few attempts in the baseline", 1, map[string]string{"attempts": "21"}, nil, Invalid, "a rate of 1.4 per second would suffice, or 21.0 s of it would suffice"},
		{"few attempts on a path", 0.5, nil, map[string]string{"attempts": "16", "disturbs": "true"}, Invalid, "35 attempts on 3 paths"},
		{"no demand", 0.1, nil, nil, Pass, ""},
	} {
		o := recordtest.Clean()
		o.Rate = c.rate
		s := o.Lab()
		demand(s, "baseline", c.baseline)
		demand(s, "scenario", c.scenario)
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: c.rate, From: recordtest.BaselineAt + 3*time.Millisecond, To: o.EndAt()})
		s.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 100, From: recordtest.BaselineAt + 5*time.Millisecond,
			To: recordtest.ScenarioAt, Control: true})
		r := reportOf(t, s)
		if r.Verdict != c.want || !strings.Contains(strings.Join(r.Reasons, "\n"), c.reason) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, r.Verdict, r.Reasons, c.want, c.reason)
		}
	}
}

// A run that its first failure has ended says nothing about the rest of the time that was planned, also where that loss is allowed.
func TestARunThatWasCutOffIsNoPass(t *testing.T) {
	const allowed = 1 << 20
	allow := record.Budget{Dropped: allowed, Delayed: allowed}
	for name, c := range map[string]struct {
		planned time.Duration
		budget  record.Budget
		want    Verdict
	}{
		"whole, without a loss":  {planned: time.Second, want: Fail},
		"whole, a loss within":   {planned: time.Second, budget: allow, want: Pass},
		"cut off, a loss within": {planned: time.Hour, budget: allow, want: Invalid},
		"cut off by a loss":      {planned: time.Hour, want: Fail},
	} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Run.Budget = c.budget
		demand(s, "scenario", map[string]string{"lastsNs": strconv.FormatInt(int64(c.planned), 10)})
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: 40 * time.Second, To: 40100 * time.Millisecond, Class: record.Refused})
		if r := reportOf(t, o.Start(s)); r.Verdict != c.want {
			t.Errorf("%s: %s %q, want %s", name, r.Verdict, r.Reasons, c.want)
		}
	}
}

// A loss can be one of a single lane, such as of UDP on one node: each lane needs two attempts on each path in its time.
func TestALossOfOneLaneMustMeetAttempts(t *testing.T) {
	o := recordtest.Clean()
	o.Rate = 0.5
	s := o.Lab()
	demand(s, "scenario", map[string]string{"lossMs": "6000"})
	for id, name := range []string{"web", "", "more"} {
		if name != "" {
			s.Probe(recordtest.Lane{ID: uint16(id), Name: name, Target: recordtest.WebAddress, Rate: o.Rate, From: recordtest.BaselineAt + 3*time.Millisecond, To: o.EndAt()})
		}
	}
	s.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 100, From: recordtest.BaselineAt + 5*time.Millisecond,
		To: recordtest.ScenarioAt, Control: true})
	if r := reportOf(t, s); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "a path has an attempt every 6.00 s") {
		t.Errorf("%s %q", r.Verdict, r.Reasons)
	}
}

// On a live cluster a node loses its proxy or its readiness without a step too. A rule for disturbed nodes is not about such nodes.
func TestOnlyStepsDisturbNodesOfALiveCluster(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		steps bool
		want  bool
	}{"a lab": {"vm", false, true}, "a live cluster": {"cluster", false, false}, "a step on a live cluster": {"cluster", true, true}} {
		s := recordtest.Disturbed(recordtest.OffAt + 18*time.Second)
		s.Run.Kernel.Kind = c.kind
		s.Event(recordtest.OffAt, record.KindProxy, "node-2", "proxy", "stopped", "state", "stopped")
		s.Measure()
		if !c.steps {
			s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindStep })
		}
		a, err := New(s.Write(t))
		if err != nil {
			t.Fatal(err)
		}
		if a.disturbed["node-2"] != c.want {
			t.Errorf("%s: node-2 is disturbed: %t, want %t", name, a.disturbed["node-2"], c.want)
		}
	}
}

// A loss that was seen is a loss, however few attempts there were.
func TestALossIsAFailAtAnyRate(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	demand(s, "scenario", map[string]string{"attempts": "1000000", "lossMs": "1"})
	s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: 40 * time.Second, To: 40100 * time.Millisecond, Class: record.Refused})
	if r := reportOf(t, o.Start(s)); r.Verdict != Fail {
		t.Errorf("%s: %q", r.Verdict, r.Reasons)
	}
}

// A phase that disturbs nothing is judged by its own attempts, not by those after it.
func TestTimeAfterAScenarioCountsOnlyForWhatDisturbs(t *testing.T) {
	for disturbs, want := range map[string]Verdict{"true": Pass, "false": Invalid} {
		o := recordtest.Clean()
		s := o.Lab()
		demand(s, "scenario", map[string]string{"attempts": "5", "disturbs": disturbs})
		for i := range s.Events {
			if e := &s.Events[i]; e.Kind == record.KindPhase && e.Object == "settle" {
				e.At = recordtest.ScenarioAt
			}
		}
		r := reportOf(t, o.Start(s))
		if r.Verdict != want {
			t.Errorf("disturbs=%s: %s %q, want %s", disturbs, r.Verdict, r.Reasons, want)
		}
		if want == Invalid && !strings.HasSuffix(r.Reasons[0], "5 on each are the least; 1.00 s of it would suffice") {
			t.Errorf("%q does not name the time that suffices", r.Reasons[0])
		}
	}
}

// Connections must have reached the pods that each rollout made.
func TestAPassNeedsAnswersOfEachGeneration(t *testing.T) {
	for reached, want := range map[bool]Verdict{true: Pass, false: Invalid} {
		o := recordtest.Clean()
		s := o.Start(o.Lab())
		for i := range s.Attempts {
			if a := &s.Attempts[i]; !reached && a.Lane == 0 {
				a.Generation = "5d9f"
			}
		}
		r := reportOf(t, s)
		if r.Verdict != want || !reached && !strings.Contains(r.Reasons[0], "3 generations of pods with the first one, and connections reached 1") {
			t.Errorf("reached %t: %s %q, want %s", reached, r.Verdict, r.Reasons, want)
		}
	}
}
