package analysis

import (
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
