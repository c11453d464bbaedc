package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// judgeKept judges whether the flow of each of the spec's lanes stays with its pod from the first step of the scenario on, as long as the pod
// is ready.
func (s Spec) judgeKept(h *record.History) (outcome, error) {
	a, err := analysis.New(h)
	if err != nil {
		return outcome{}, err
	}
	first, last, has := stepsOf(a.Events)
	if !has {
		return outcome{State: Invalid, Reasons: []string{"the run has no step at which a flow could move"}}, nil
	}
	o := outcome{State: Passed}
	for _, l := range a.Measured() {
		if !s.judges(l.Protocol) {
			continue
		}
		if !answeredAround(l, first, last) {
			return outcome{State: Invalid, Reasons: []string{fmt.Sprintf("no pod answered lane %s both before the first step and after the last one", l.Name)}}, nil
		}
		for _, m := range a.Moves(l) {
			if m.At >= first && m.Stayed {
				o.State = Failed
				o.Reasons = append(o.Reasons, fmt.Sprintf("lane %s moved from %s to %s at %.1f s, although %s was ready", l.Name, m.From, m.To, m.At.Seconds(), m.From))
			}
		}
	}
	return o, nil
}

// stepsOf is the time from the begin of the first step of the scenario to the end of the last one.
func stepsOf(events []record.Event) (first, last time.Duration, has bool) {
	scenario := false
	for _, e := range events {
		switch body := e.Body.(type) {
		case record.Phase:
			scenario = e.Object == "scenario"
		case record.Step:
			if scenario && body.State == record.StepBegin && !has {
				first, has = e.At, true
			}
			if scenario {
				last = e.At
			}
		}
	}
	return first, last, has
}

// answeredAround reports whether an attempt of a lane was answered before a time, and one after another.
func answeredAround(l *analysis.Lane, before, after time.Duration) bool {
	return answered(l, func(at time.Duration) bool { return at < before }) && answered(l, func(at time.Duration) bool { return at > after })
}

// answered reports whether a pod answered an attempt of a lane that started at such a time.
func answered(l *analysis.Lane, when func(at time.Duration) bool) bool {
	return slices.ContainsFunc(l.Records, func(r analysis.Sample) bool { return r.Class == record.OK && r.Backend != 0 && when(r.Start()) })
}
