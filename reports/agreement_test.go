package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// checkedRuns are runs of different shapes for everything that must hold for all of them.
func checkedRuns() map[string]*lab {
	runs := map[string]*lab{}
	for name, o := range map[string]rolling{"pass": {seed: 1, fallback: true, rollouts: 2}, "fail": {seed: 2, rollouts: 2},
		"fast": {seed: 3, rollouts: 1, rate: 1000}, "unproved": {seed: 4, rollouts: 1, noProof: true}} {
		runs[name] = o.start(o.lab())
	}
	mixed := rolling{seed: 5, fallback: true, rollouts: 2}
	s := mixed.lab()
	for i, class := range faultClasses {
		from := scenarioAt + time.Duration(3*i)*time.Second
		s.faults = append(s.faults, fault{anyLane: true, from: from, to: from + 300*time.Millisecond, class: class})
	}
	runs["mixed"] = mixed.start(s)
	return runs
}

func TestReportsAgreeWithTheirHistory(t *testing.T) {
	for name, s := range checkedRuns() {
		h := s.write(t)
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
	h := checkedRuns()["mixed"].write(t)
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
	for i := range s.events {
		if e := &s.events[i]; e.Kind() == record.KindMembership {
			e.Attrs["seed"] = "8"
		}
	}
	if err := CheckPaths(s.write(t)); err == nil || !strings.Contains(err.Error(), "came over another node") {
		t.Errorf("paths computed with a wrong seed gave %v", err)
	}
}
