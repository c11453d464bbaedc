package analysis

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func TestARolloutWithoutLossPasses(t *testing.T) {
	o := recordtest.Clean()
	r := reportOf(t, o.Start(o.Lab()))
	if r.Verdict != Pass || len(r.Reasons) != 1 || r.Reasons[0] != r.Sentence() {
		t.Fatalf("%s: %q", r.Verdict, r.Reasons)
	}
	if r.Totals.Attempts != 9000 || r.Totals.OK != 9000 || len(r.Lanes) != 1 || len(r.Controls) != 1 {
		t.Errorf("totals %+v over %d lanes and %d controls", r.Totals, len(r.Lanes), len(r.Controls))
	}
	if r.DetectionFloor.Ms == nil || *r.DetectionFloor.Ms != 20 || !slices.Equal(r.DetectionFloor.Injected, r.DetectionFloor.Found) {
		t.Errorf("detection floor %+v, want 20 ms with all faults found", r.DetectionFloor)
	}
	if want := "bundled v0.1.0 ipvs, rollout, 3 nodes: 0 of 9,000 connections failed; outages shorter than 20 ms may be missed, on one node those shorter than 40 ms."; r.Sentence() != want {
		t.Errorf("sentence:\n%s\nwant:\n%s", r.Sentence(), want)
	}
}

// A proxy that removes rules of another program fails, also where no connection was lost.
func TestAProxyThatRemovesForeignRulesFails(t *testing.T) {
	for state, want := range map[string]Verdict{"removed": Fail, "end": Pass} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Event(recordtest.ScenarioAt+time.Second, record.KindInterference, "node-2", "stale-allow", "removed", "state", state, "id", "node-2", "what", "the proxy of node-2 removed rules")
		r := reportOf(t, o.Start(s))
		if told := strings.Contains(strings.Join(r.Reasons, "; "), "the proxy of node-2 removed rules"); r.Verdict != want || told != (want == Fail) {
			t.Errorf("%s: %s, %q", state, r.Verdict, r.Reasons)
		}
	}
}

func TestLossBeyondTheBudgetFails(t *testing.T) {
	for _, c := range []struct {
		class  record.Class
		budget record.Budget
		want   Verdict
		reason string
	}{
		{record.ConnectTimeout, record.Budget{}, Fail, "connections were dropped, the budget allows 0"},
		{record.Delayed, record.Budget{}, Fail, "connections were delayed, the budget allows 0"},
		{record.ConnectTimeout, record.Budget{Dropped: 30}, Pass, ""},
		{record.ConnectTimeout, record.Budget{Dropped: 29}, Fail, "30 connections were dropped, the budget allows 29"},
		{record.Delayed, record.Budget{Dropped: 1000}, Fail, "30 connections were delayed, the budget allows 0"},
		{record.Delayed, record.Budget{Delayed: 30}, Pass, ""},
	} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Run.Budget = c.budget
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 0, From: recordtest.ScenarioAt + 100*time.Millisecond, To: recordtest.ScenarioAt + 400*time.Millisecond, Class: c.class})
		r := reportOf(t, o.Start(s))
		if r.Verdict != c.want {
			t.Errorf("%s with budget %+v: %s (%q), want %s", c.class, c.budget, r.Verdict, r.Reasons, c.want)
		}
		if !strings.Contains(strings.Join(r.Reasons[1:], "\n"), c.reason) {
			t.Errorf("%s with budget %+v: reasons %q, want one with %q", c.class, c.budget, r.Reasons, c.reason)
		}
	}
}

// Each way in which a measurement cannot be trusted has a run that is made untrustworthy in exactly that way; the same
// run without the change passes (TestARolloutWithoutLossPasses).
func TestAnUntrustworthyRunIsInvalid(t *testing.T) {
	dropEvents := func(s *recordtest.Lab, drop func(recordtest.Event) bool) {
		s.Events = slices.DeleteFunc(s.Events, drop)
	}
	web := func(s *recordtest.Lab, change func(*record.Attempt)) {
		for i := range s.Attempts {
			if s.Attempts[i].Lane == 0 {
				change(&s.Attempts[i])
			}
		}
	}
	for _, c := range []struct {
		name   string
		before func(*recordtest.Lab) // attempts are made
		after  func(*recordtest.Lab)
		reason string
	}{
		{"a failure in the baseline", func(s *recordtest.Lab) {
			s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: 10 * time.Second, To: 10100 * time.Millisecond, Class: record.ConnectTimeout})
		}, nil, "the baseline is not clean: "},
		{"the probe's own fault", nil, func(s *recordtest.Lab) { s.Attempts[7000].Class = record.Probe }, "1 attempt of 9,000 failed by the probe's own fault"},
		{"late starts", nil, func(s *recordtest.Lab) {
			web(s, func(a *record.Attempt) {
				if a.Seq%50 == 0 {
					a.Start += 12 * time.Millisecond
				}
			})
		}, "lane web fell behind: attempts started 12 ms late (p99), 10 ms is the limit"},
		{"a low rate", nil, func(s *recordtest.Lab) {
			web(s, func(a *record.Attempt) {
				a.Intended += time.Duration(a.Seq) * 200 * time.Microsecond
				a.Start = a.Intended
			})
		}, "its rate of 100 per second asks for"},
		{"lost records", nil, func(s *recordtest.Lab) { s.Attempts = slices.Delete(s.Attempts, 4000, 4002) }, "lane web lost records: of 9,000 numbers 2 are missing and 0 stand twice"},
		{"a record that stands twice", nil, func(s *recordtest.Lab) { s.Attempts = append(s.Attempts, s.Attempts[4000]) }, "0 are missing and 1 stand twice"},
		{"a failed step", func(s *recordtest.Lab) {
			s.Event(40*time.Second, record.KindStep, "", "restart", "restart fails", "state", "failed", "error", "no such pod")
		}, nil, "step restart failed at +40.000 s: no such pod"},
		{"no step completed", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Kind == record.KindStep && e.Attrs["state"] == "end" })
		}, "no step of the scenario was completed"},
		{"steps only before the scenario", nil, func(s *recordtest.Lab) {
			for i := range s.Events {
				if s.Events[i].Kind == record.KindStep {
					s.Events[i].At = 3 * time.Second
				}
			}
		}, "no step of the scenario was completed"},
		{"a guard", func(s *recordtest.Lab) {
			s.Event(40*time.Second, record.KindGuard, "", "conntrack", "the conntrack table is 51 % full")
		}, nil,
			"a guard of the measurement tripped at +40.000 s: the conntrack table is 51 % full"},
		{"no end", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Kind == record.KindPhase && e.Object == "end" })
		}, `no phase "end"`},
		{"no baseline", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Kind == record.KindPhase && e.Object == "baseline" })
		}, `no phase "baseline"`},
		{"no proof", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Kind == record.KindFault })
			s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 1 && a.Seq > 1500 })
		}, "the detector was not proved"},
		{"a proof that never ended", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Object == "proof-200" && e.Attrs["state"] == "end" })
		}, "1 injected fault never ended"},
		{"a proof for no lane", func(s *recordtest.Lab) {
			s.Event(21*time.Second, record.KindFault, "", "x", "x", "state", "begin", "id", "x", "lane", "nowhere", "control", "true")
		}, nil, `for lane "nowhere", which does not exist`},
		{"a proof that was not found", nil, func(s *recordtest.Lab) {
			for i := range s.Attempts {
				if a := &s.Attempts[i]; a.Lane == 1 && a.Intended < recordtest.ProofAt+1500*time.Millisecond {
					a.Class = record.OK
				}
			}
		}, "the injected drop of 20 ms on lane canary at +21.000 s was not found"},
		{"a proof that looked much longer than it was", nil, func(s *recordtest.Lab) {
			for i := range s.Attempts {
				if a := &s.Attempts[i]; a.Lane == 1 && a.Intended > recordtest.ProofAt+1900*time.Millisecond && a.Intended < recordtest.ProofAt+3*time.Second {
					a.Class = record.Delayed
				}
			}
		}, "the injected drop of 200 ms on lane canary at +22.000 s was not found"},
		{"a proof that failed as nothing was injected", nil, func(s *recordtest.Lab) {
			for i := range s.Attempts {
				if a := &s.Attempts[i]; a.Lane == 1 && a.Class == record.Delayed && a.Intended > recordtest.ProofAt+1900*time.Millisecond {
					a.Class = record.Refused
				}
			}
		}, "the injected drop of 200 ms on lane canary at +22.000 s was not found"},
		{"a false alarm", func(s *recordtest.Lab) {
			s.Faults = append(s.Faults, recordtest.Fault{Lane: 1, From: 10 * time.Second, To: 10100 * time.Millisecond, Class: record.Refused})
		}, nil, "a false alarm: control lane canary saw an outage of "},
		{"a lane that ended early", nil, func(s *recordtest.Lab) {
			s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 0 && a.Intended > 80*time.Second })
		}, "lane web ended at +80.0"},
		{"a lane that began late", nil, func(s *recordtest.Lab) {
			s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 0 && a.Intended < 20*time.Second })
			web(s, func(a *record.Attempt) { a.Seq -= 1500 })
		}, "lane web began at +20.0"},
		{"a lane without attempts", nil, func(s *recordtest.Lab) {
			s.Event(time.Second, record.KindLane, "", "idle", "lane idle", "id", "9", "name", "idle", "rate", "10", "target", "203.0.113.10:80")
		}, "lane idle made no attempt"},
		{"no measured lane", nil, func(s *recordtest.Lab) {
			dropEvents(s, func(e recordtest.Event) bool { return e.Kind == record.KindLane && e.Attrs["id"] == "0" })
		}, "no lane measured the subject"},
		{"attempts of an undeclared lane", nil, func(s *recordtest.Lab) { s.Attempts[5].Lane = 77 }, "1 attempt of 11000 belong to no declared lane"},
		{"a lane without a rate", nil, func(s *recordtest.Lab) {
			s.Event(time.Second, record.KindLane, "", "x", "lane x", "id", "9", "name", "x", "rate", "fast")
		}, `rate="fast"`},
		{"two lanes of one name", nil, func(s *recordtest.Lab) {
			s.Event(time.Second, record.KindLane, "", "web", "lane web", "id", "9", "name", "web", "rate", "10")
		}, "lane 9 (web) is declared twice"},
		{"a balancer event without an address", func(s *recordtest.Lab) { s.Event(time.Second, record.KindMembership, "", "web", "x") }, nil, "balancer event at 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := recordtest.Clean()
			s := o.Lab()
			if c.before != nil {
				c.before(s)
			}
			o.Start(s)
			if c.after != nil {
				c.after(s)
			}
			r := reportOf(t, s)
			if r.Verdict != Invalid {
				t.Fatalf("%s: %q", r.Verdict, r.Reasons)
			}
			if !strings.Contains(strings.Join(r.Reasons, "\n"), c.reason) {
				t.Errorf("reasons %q, want one with %q", r.Reasons, c.reason)
			}
		})
	}
}

// A lane that the scenario ends itself need not last as long as the run, and must begin with it all the same.
func TestAPartialLaneMayEndEarly(t *testing.T) {
	for _, c := range []struct {
		partial  string
		from, to time.Duration
		want     Verdict
	}{
		{"true", 0, 50 * time.Second, Pass},
		{"true", 40 * time.Second, 50 * time.Second, Invalid},
		{"", 0, 50 * time.Second, Invalid},
	} {
		o := recordtest.Clean()
		s := o.Lab()
		o.Start(s)
		s.Probe(recordtest.Lane{ID: 5, Name: "long", Target: recordtest.WebAddress, Rate: 20, From: recordtest.BaselineAt + c.from, To: c.to})
		for i := range s.Events {
			if e := &s.Events[i]; e.Kind == record.KindLane && e.Attrs["id"] == "5" {
				e.Attrs["partial"] = c.partial
			}
		}
		if r := reportOf(t, s); r.Verdict != c.want {
			t.Errorf("%+v: %s: %q", c, r.Verdict, r.Reasons)
		}
	}
}

// On a busy machine an attempt may start late enough to meet a fault that was injected after its intended start.
func TestALateAttemptIsNoFalseAlarm(t *testing.T) {
	for start, verdict := range map[time.Duration]Verdict{time.Millisecond: Pass, -35 * time.Millisecond: Invalid} {
		o := recordtest.Clean()
		s := o.Lab()
		o.Start(s)
		const fault = recordtest.ProofAt + 2*time.Second // the drop of 200 ms
		i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 1 && a.Intended > fault-40*time.Millisecond })
		a := &s.Attempts[i]
		a.Start, a.Class = fault+start, record.Delayed
		if r := reportOf(t, s); r.Verdict != verdict {
			t.Errorf("an attempt that fails when it started %s after the fault and was intended at %s before makes the run %s, want %s: %q",
				start, fault-a.Intended, r.Verdict, verdict, r.Reasons)
		}
	}
}

// A lost attempt counts, however late it started.
func TestALossOfALateAttemptCounts(t *testing.T) {
	for _, late := range []time.Duration{10 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second} {
		o := recordtest.Clean()
		s := o.Lab()
		o.Start(s)
		i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 0 && a.Intended > recordtest.ScenarioAt+5*time.Second })
		a := &s.Attempts[i]
		*a = recordtest.FailedAttempt(record.Attempt{Seq: a.Seq, Intended: a.Intended, Start: a.Intended + late, Source: a.Source}, record.ConnectTimeout)
		if r := reportOf(t, s); r.Verdict != Fail || r.Totals.Dropped != 1 {
			t.Errorf("%v late: %s %q with %d dropped", late, r.Verdict, r.Reasons, r.Totals.Dropped)
		}
	}
}

// An attempt that is on its way when the scenario begins may meet the scenario, as a node that loses power at once.
func TestAnAttemptOnItsWayIntoTheScenarioIsNoFalseAlarm(t *testing.T) {
	for before, verdict := range map[time.Duration]Verdict{500 * time.Microsecond: Pass, 60 * time.Millisecond: Invalid} {
		o := recordtest.Clean()
		s := o.Lab()
		o.Start(s)
		i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool {
			return a.Lane == 1 && a.Intended > recordtest.ScenarioAt-before-20*time.Millisecond
		})
		a := &s.Attempts[i]
		a.Start, a.Class, a.Connect = recordtest.ScenarioAt-before, record.ConnectTimeout, 0
		if r := reportOf(t, s); r.Verdict != verdict {
			t.Errorf("an attempt of the control lane that started %s before the scenario, and was lost, makes the run %s, want %s: %q",
				before, r.Verdict, verdict, r.Reasons)
		}
	}
}

// A control lane that fails with the subject during the scenario must not turn a failed run into an invalid one.
func TestAControlLaneMayFailWithTheSubject(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: 40 * time.Second, To: 40300 * time.Millisecond, Class: record.ConnectTimeout})
	o.Start(s)
	s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 1 })
	s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindLane && e.Attrs["id"] == "1" })
	s.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 100, From: recordtest.BaselineAt, To: o.EndAt(), Control: true})
	if r := reportOf(t, s); r.Verdict != Fail || r.Controls[0].Dropped == 0 {
		t.Fatalf("%s: %q; the control lane dropped %d", r.Verdict, r.Reasons, r.Controls[0].Dropped)
	}
}

func TestADamagedRecordSaysWhatIsMissing(t *testing.T) {
	o := recordtest.Clean()
	h := o.Start(o.Lab()).Write(t)
	for _, c := range []struct{ file, reason string }{
		{record.AttemptsFile, "the record of attempts is damaged after "},
		{record.EventsFile, "the record of events is damaged after "},
	} {
		file := filepath.Join(h.Dir(), c.file)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, cut := range []int{len(whole) * 2 / 3, len(whole)*2/3 + 1} { // at most one of them is the end of a record
			if err := os.WriteFile(file, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Build(h)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != Invalid {
				t.Errorf("%s cut: %s %q", c.file, r.Verdict, r.Reasons)
			}
			told = told || strings.Contains(strings.Join(r.Reasons, "\n"), c.reason)
		}
		if !told {
			t.Errorf("%s cut: no reason says %q", c.file, c.reason)
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for v, want := range map[Verdict]int{Pass: 0, Fail: 1, Skipped: 2, Invalid: 3, "": 3} {
		if got := v.ExitCode(); got != want {
			t.Errorf("%q exits with %d, want %d", v, got, want)
		}
	}
}
