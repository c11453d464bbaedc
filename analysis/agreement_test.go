package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// checkedRuns are runs of different shapes for everything that must hold for all of them.
func checkedRuns() map[string]*recordtest.Lab {
	runs := map[string]*recordtest.Lab{}
	for name, o := range map[string]recordtest.Rollout{"pass": {Seed: 1, Fallback: true, Rollouts: 2}, "fail": {Seed: 2, Rollouts: 2},
		"fast": {Seed: 3, Rollouts: 1, Rate: 1000}, "unproved": {Seed: 4, Rollouts: 1, NoProof: true}} {
		runs[name] = o.Start(o.Lab())
	}
	mixed := recordtest.Rollout{Seed: 5, Fallback: true, Rollouts: 2}
	s := mixed.Lab()
	for i, class := range recordtest.FaultClasses {
		from := recordtest.ScenarioAt + time.Duration(3*i)*time.Second
		s.Faults = append(s.Faults, recordtest.Fault{AnyLane: true, From: from, To: from + 300*time.Millisecond, Class: class})
	}
	runs["mixed"] = mixed.Start(s)
	return runs
}

func TestReportsAgreeWithTheirHistory(t *testing.T) {
	for name, s := range checkedRuns() {
		h := s.Write(t)
		r, err := Build(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckAgreement(h, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := CheckPaths(h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The check can fail: each of these changes of a report, or of its history, is found.
func TestDisagreementIsFound(t *testing.T) {
	h := checkedRuns()["mixed"].Write(t)
	for name, change := range map[string]func(*Report){
		"one dropped more":           func(r *Report) { r.Totals.Dropped++ },
		"one class more":             func(r *Report) { r.Totals.ByClass["refused"]++ },
		"a drop in another second":   func(r *Report) { l := r.Lanes[0].DroppedPerSecond; l[30]++; l[31]-- },
		"a drop in no second":        func(r *Report) { r.Lanes[0].DroppedPerSecond[80] = 1 },
		"an attempt on another path": func(r *Report) { p := r.Lanes[0].Paths; p[0].Attempts--; p[1].Attempts++ },
		"a drop on another path":     func(r *Report) { p := r.Lanes[0].Paths; p[0].Dropped--; p[1].Dropped++ },
		"a failure without outage":   func(r *Report) { r.Lanes[0].Outages = r.Lanes[0].Outages[1:] },
		"a failure in two outages":   func(r *Report) { r.Lanes[0].Outages = append(r.Lanes[0].Outages, r.Lanes[0].Outages[0]) },
		"a lane left out":            func(r *Report) { r.Controls = nil },
		"a control lane in totals":   func(r *Report) { r.Totals.Attempts += r.Controls[0].Attempts },
		"a lane twice":               func(r *Report) { r.Lanes = append(r.Lanes, r.Lanes[0]) },
	} {
		r, err := Build(h)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if err := CheckAgreement(h, r); err == nil {
			t.Errorf("%s was not found", name)
		}
	}
}

func TestAWrongBalancerSeedIsFound(t *testing.T) {
	s := checkedRuns()["pass"]
	for i := range s.Events {
		if e := &s.Events[i]; e.Kind == record.KindMembership {
			e.Attrs["seed"] = "8"
		}
	}
	if err := CheckPaths(s.Write(t)); err == nil || !strings.Contains(err.Error(), "came over another node") {
		t.Errorf("paths computed with a wrong seed gave %v", err)
	}
}
