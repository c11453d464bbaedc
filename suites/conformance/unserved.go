package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// judgeDeleted judges whether the spec's lanes get no answer while their Service is deleted.
func (s Spec) judgeDeleted(h *record.History) (outcome, error) {
	a, err := analysis.New(h)
	if err != nil {
		return outcome{}, err
	}
	away := between(a.Events, "delete the Service", "create it again")
	o := outcome{State: Passed}
	for _, l := range a.Measured() {
		if !s.judges(l.Protocol) {
			continue
		}
		in := away.attempts(l)
		if no := away.judgeable(l, in); no != nil {
			return *no, nil
		}
		if n := count(in, isAnswer); n > 0 {
			o.State = Failed
			o.Reasons = append(o.Reasons, fmt.Sprintf("lane %s was answered %d of %d times from %.1f s to %.1f s, although its Service was deleted", l.Name, n, len(in),
				away.from.Seconds(), away.to.Seconds()))
		}
	}
	return o, nil
}

// isAnswer reports whether anything answered an attempt, also a pod of another Service.
func isAnswer(c record.Class) bool {
	return c == record.OK || c == record.Delayed || c == record.Misrouted || c == record.WrongAnswer
}

// judgeRefused judges whether most datagrams of the spec's lanes are refused while the Service has no endpoint, if most new connections are.
func (s Spec) judgeRefused(h *record.History) (outcome, error) {
	a, err := analysis.New(h)
	if err != nil {
		return outcome{}, err
	}
	away := between(a.Events, "scale to 0", "scale to ")
	o := outcome{State: Passed}
	for _, l := range a.Measured() {
		if l.Protocol != newLane && !s.judges(l.Protocol) {
			continue
		}
		in := away.attempts(l)
		if no := away.judgeable(l, in); no != nil {
			return *no, nil
		}
		switch refused := count(in, func(c record.Class) bool { return c == record.Refused || c == record.Rejected }); {
		case 2*refused >= len(in):
		case l.Protocol == newLane:
			return outcome{State: Skipped, Reasons: []string{fmt.Sprintf("lane %s was not refused either while the Service had no endpoint", l.Name)}}, nil
		default:
			o.State = Failed
			o.Reasons = append(o.Reasons, fmt.Sprintf("lane %s was refused %d of %d times from %.1f s to %.1f s, although the Service had no endpoint", l.Name, refused, len(in),
				away.from.Seconds(), away.to.Seconds()))
		}
	}
	return o, nil
}

// absence is a time in which a Service does not serve.
type absence struct{ begin, from, to time.Duration }

// between is the time from followWithin after the end of a step until the begin of the next step whose name has a prefix.
func between(events []record.Event, step, next string) (a absence) {
	for _, e := range events {
		switch body, is := e.Body.(record.Step); {
		case !is:
		case e.Object == step && body.State == record.StepBegin:
			a.begin = e.At
		case e.Object == step && body.State == record.StepEnd:
			a.from = e.At + followWithin
		case a.from > 0 && a.to == 0 && body.State == record.StepBegin && strings.HasPrefix(e.Object, next):
			a.to = e.At
		}
	}
	return a
}

// attempts are the attempts of a lane that were planned for that time.
func (a absence) attempts(l *analysis.Lane) (in []analysis.Sample) {
	for _, r := range l.Records {
		if r.Intended >= a.from && r.Intended < a.to {
			in = append(in, r)
		}
	}
	return in
}

// judgeable is the outcome where the attempts of a lane in that time tell nothing; nil if they do.
func (a absence) judgeable(l *analysis.Lane, in []analysis.Sample) *outcome {
	why := ""
	switch {
	case a.from == 0 || a.to <= a.from:
		why = fmt.Sprintf("the run has no time without service that is longer than %s", followWithin)
	case len(in) == 0:
		why = fmt.Sprintf("lane %s made no attempt from %.1f s to %.1f s", l.Name, a.from.Seconds(), a.to.Seconds())
	case !answered(l, func(at time.Duration) bool { return at < a.begin }):
		why = fmt.Sprintf("no attempt of lane %s was answered before the Service was gone", l.Name)
	default:
		return nil
	}
	return &outcome{State: Invalid, Reasons: []string{why}}
}

// count is the number of attempts with a class.
func count(in []analysis.Sample, has func(record.Class) bool) (n int) {
	for _, r := range in {
		if has(r.Class) {
			n += int(r.N)
		}
	}
	return n
}
