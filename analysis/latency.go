package analysis

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The default bounds of latency, and what a judgement needs at least. On clusters other traffic may delay connections too.
const (
	slowMore       = 100 * time.Millisecond // beyond the baseline's p99: a slow connection
	slowPercent    = 0.3                    // of the connections from the scenario on, in the lab
	clusterPercent = 1.0                    // the same on a cluster
	p99ExtraMs     = 100.0                  // of the p99 of the time to connect, in the lab
	clusterExtraMs = 250.0                  // the same on a cluster
	fewestBaseline = 100                    // connections, for a p99
	fewestAfter    = 200
	waitsForCPU    = 3 // of a connection: the client, the pod, the client again
)

// SlowReport compares the latency of a lane's new connections from the scenario on with its own baseline. Only connections that
// succeeded without a lost SYN count.
type SlowReport struct {
	Text        string  `json:"text"` // a sentence without its full stop
	Judged      bool    `json:"judged"`
	BaselineP99 float64 `json:"baselineP99"` // seconds until connected, before the scenario
	P99         float64 `json:"p99"`         // the same from the scenario on
	Bound       float64 `json:"bound"`       // seconds; a connection whose answer took longer is slow
	Connections int     `json:"connections"` // from the scenario on
	Slow        int     `json:"slow"`
	Measurement int     `json:"measurement"` // how many of the slow ones a late measurement may explain
}

// speed is how fast connections were: until connected, and until answered.
type speed struct{ connect, answer record.Bins }

// speeds are those of the lane's good connections before and from an instant on, and the number of attempts from then on that
// started too late to tell whether a connection was slow.
func (l *Lane) speeds(began, tooLate time.Duration) (before, after speed, late int) {
	before, after = speed{record.Bins{}, record.Bins{}}, speed{record.Bins{}, record.Bins{}}
	before.merge(l.folded.before)
	after.merge(l.folded.after)
	for i := range l.Records {
		r := &l.Records[i]
		if r.bucket() {
			continue
		}
		if r.Intended >= began && time.Duration(r.late) > tooLate {
			late++
		}
		if r.Class != record.OK || r.connect == 0 {
			continue
		}
		s := &before
		if r.Intended >= began {
			s = &after
		}
		s.connect.Add(time.Duration(r.connect), 1)
		answer := time.Duration(r.total) * time.Microsecond
		if late := time.Duration(r.late); late <= record.LatenessLimit { // as buckets have it
			answer += late
		}
		s.answer.Add(answer, 1)
	}
	return before, after, late
}

func (s *speed) merge(o speed) {
	s.connect.Merge(o.connect)
	s.answer.Merge(o.answer)
}

// slowReport compares a lane with its baseline; nil for lanes whose attempts are no connections of their own.
func (a *Analysis) slowReport(l *Lane) *SlowReport {
	scenario, ok := a.Phase("scenario")
	if !ok || l.Control || !l.Opens() {
		return nil
	}
	more := slowMore
	if a.Run.Clock != "virtual" {
		more = max(more, l.Interval) // as late as attempts may start
	}
	before, after, late := l.speeds(scenario.From-l.fleet.clock, more/2)
	bound := before.answer.Quantile(0.99) + more
	s := &SlowReport{BaselineP99: units.Seconds(before.connect.Quantile(0.99)), P99: units.Seconds(after.connect.Quantile(0.99)),
		Bound: units.Seconds(bound), Connections: int(after.answer.Count())}
	for _, v := range after.answer.Append(nil) {
		if v.Value > bound {
			s.Slow += int(v.N)
		}
	}
	s.Measurement = min(s.Slow, waitsForCPU*late)
	s.Text = fmt.Sprintf("lane %s: p99 of the time to connect %s, in the baseline %s; after the baseline %s of %s took longer than %s until the answer", l.Name,
		units.MsText(s.P99*1e3), units.MsText(s.BaselineP99*1e3), units.Thousands(s.Slow), units.Plural(s.Connections, "connection"), units.MsText(units.Millis(bound)))
	if s.Measurement > 0 {
		s.Text += fmt.Sprintf(", of which the measurement may have delayed %s", units.Thousands(s.Measurement))
	}
	switch percent, extra := a.latencyBounds(); {
	case percent == nil && extra == nil:
		s.Text += "; not judged, because hitless disturbs nothing and no budget gives bounds"
	case before.answer.Count() < fewestBaseline:
		s.Text += fmt.Sprintf("; not judged, because the baseline has %s, fewer than %d", units.Plural(int(before.answer.Count()), "connection"), fewestBaseline)
	case s.Connections < fewestAfter:
		s.Text += fmt.Sprintf("; not judged, because the time after the baseline has %s, fewer than %d", units.Plural(s.Connections, "connection"), fewestAfter)
	default:
		s.Judged = true
	}
	return s
}

// latencyBounds are the run's bounds of the share of slow connections and of the p99; nil for none.
func (a *Analysis) latencyBounds() (percent, extra *float64) {
	percent, extra = a.Run.Budget.SlowPercent, a.Run.Budget.P99ExtraMs
	scenario, _ := a.Phase("scenario")
	switch {
	case a.inLab():
		return cmp.Or(percent, new(slowPercent)), cmp.Or(extra, new(p99ExtraMs))
	case scenario.Disturbs:
		return cmp.Or(percent, new(clusterPercent)), cmp.Or(extra, new(clusterExtraMs))
	}
	return percent, extra
}

// tooSlowFor tells how a lane exceeds the bounds of latency.
func (a *Analysis) tooSlowFor(l LaneReport) (why []string) {
	s := l.Slow
	if s == nil || !s.Judged {
		return nil
	}
	percent, extra := a.latencyBounds()
	if percent != nil && float64(s.Slow-s.Measurement) > mostSlow(s.Connections, *percent) {
		why = append(why, fmt.Sprintf("lane %s became slow: %s of %s took longer than %s, the budget allows %s %%", l.Name, units.Thousands(s.Slow-s.Measurement),
			units.Plural(s.Connections, "new connection"), units.MsText(s.Bound*1e3), strconv.FormatFloat(*percent, 'g', -1, 64)))
	}
	if rise := (s.P99 - s.BaselineP99) * 1e3; extra != nil && rise > *extra && (s.Measurement == 0 || s.Slow > s.Measurement) {
		why = append(why, fmt.Sprintf("lane %s became slow: connections needed %s (p99) until connected, %s in the baseline; the budget allows %s more", l.Name,
			units.MsText(s.P99*1e3), units.MsText(s.BaselineP99*1e3), units.MsText(*extra)))
	}
	return why
}

// mostSlow is the number of slow connections that chance makes of a share, two standard deviations above it.
func mostSlow(connections int, percent float64) float64 {
	expected := float64(connections) * percent / 100
	return expected + 2*math.Sqrt(expected)
}
