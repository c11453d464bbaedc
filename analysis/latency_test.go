package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// slowed adds time to each nth attempt of the measured lane in a time of the run.
func slowed(s *recordtest.Lab, each uint64, more time.Duration, from, to time.Duration, connect bool) {
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Lane == 0 && a.Seq%each == 0 && a.Intended >= from && a.Intended < to {
			a.Total += more
			if connect {
				a.Connect += more
			}
		}
	}
}

// A run whose connections become slower than in its own baseline fails, as far as chance and the measurement do not explain it.
func TestSlowConnectionsFail(t *testing.T) {
	const end = time.Hour
	late := func(s *recordtest.Lab) {
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Lane == 0 && a.Seq%200 == 7 && a.Intended > recordtest.ScenarioAt {
				a.Start += 80 * time.Millisecond
			}
		}
	}
	number := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		name   string
		rate   float64
		kind   string
		clock  string
		change func(s *recordtest.Lab)
		budget record.Budget
		want   Verdict
		text   string
	}{
		{name: "one in a hundred", change: func(s *recordtest.Lab) { slowed(s, 100, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Fail, text: "became slow: 70 of 7,000"},
		{name: "the answer, not the handshake", change: func(s *recordtest.Lab) { slowed(s, 100, 300*time.Millisecond, recordtest.ScenarioAt, end, false) }, want: Fail, text: "became slow"},
		{name: "one in fifty", change: func(s *recordtest.Lab) { slowed(s, 50, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Fail, text: "until connected"},
		{name: "so was the baseline", change: func(s *recordtest.Lab) { slowed(s, 50, 300*time.Millisecond, 0, end, true) }, want: Pass},
		{name: "a little slower", change: func(s *recordtest.Lab) { slowed(s, 1, 80*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Pass},
		{name: "a little slower than a strict p99 allows", change: func(s *recordtest.Lab) { slowed(s, 1, 80*time.Millisecond, recordtest.ScenarioAt, end, true) },
			budget: record.Budget{P99ExtraMs: number(50)}, want: Fail, text: "until connected"},
		{name: "a few", change: func(s *recordtest.Lab) { slowed(s, 1000, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Pass, text: "7 of 7,000 connections took longer"},
		{name: "within the budget", change: func(s *recordtest.Lab) { slowed(s, 100, 300*time.Millisecond, recordtest.ScenarioAt, end, true) },
			budget: record.Budget{SlowPercent: number(2), P99ExtraMs: number(400)}, want: Pass},
		{name: "a strict budget", change: func(s *recordtest.Lab) { slowed(s, 1000, 300*time.Millisecond, recordtest.ScenarioAt, end, true) },
			budget: record.Budget{SlowPercent: number(0)}, want: Fail, text: "the budget allows 0 %"},
		{name: "a late measurement", clock: "real", change: func(s *recordtest.Lab) {
			slowed(s, 100, 300*time.Millisecond, recordtest.ScenarioAt, end, true)
			late(s)
		}, want: Pass, text: "the measurement may have delayed 70"},
		{name: "a real clock without lateness", clock: "real", change: func(s *recordtest.Lab) { slowed(s, 100, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Fail},
		{name: "few connections", rate: 2, change: func(s *recordtest.Lab) { slowed(s, 10, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Pass, text: "not judged"},
		{name: "a live cluster", kind: "cluster", change: func(s *recordtest.Lab) {
			demand(s, "scenario", map[string]string{"disturbs": "true"})
			slowed(s, 50, 300*time.Millisecond, recordtest.ScenarioAt, end, true)
		}, want: Fail, text: "the budget allows 1 %"},
		{name: "a live cluster with some slow connections", kind: "cluster", change: func(s *recordtest.Lab) {
			demand(s, "scenario", map[string]string{"disturbs": "true"})
			slowed(s, 200, 300*time.Millisecond, recordtest.ScenarioAt, end, true)
		}, want: Pass, text: "35 of 7,000 connections took longer"},
		{name: "a live cluster that is only watched", kind: "cluster", change: func(s *recordtest.Lab) { slowed(s, 10, 300*time.Millisecond, recordtest.ScenarioAt, end, true) }, want: Pass, text: "not judged"},
		{name: "a live cluster with a budget", kind: "cluster", change: func(s *recordtest.Lab) { slowed(s, 10, 300*time.Millisecond, recordtest.ScenarioAt, end, true) },
			budget: record.Budget{SlowPercent: number(1)}, want: Fail, text: "became slow"},
	} {
		o := recordtest.Clean()
		s := o.Lab()
		s.Run.Budget = c.budget
		if c.kind != "" {
			s.Run.Kernel.Kind = c.kind
		}
		if c.clock != "" {
			s.Run.Clock = c.clock
		}
		if c.rate > 0 {
			s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: c.rate, From: recordtest.BaselineAt + 3*time.Millisecond, To: o.EndAt()})
			s.Probe(recordtest.Lane{ID: 1, Name: "canary", Target: recordtest.CanaryAddress, Rate: 100, From: recordtest.BaselineAt + 5*time.Millisecond,
				To: recordtest.ScenarioAt, Control: true})
		} else {
			o.Start(s)
		}
		c.change(s)
		r := reportOf(t, s)
		told := strings.Join(r.Reasons, "\n") + r.Lanes[0].Slow.Text
		if r.Verdict != c.want || !strings.Contains(told, c.text) || !r.Lanes[0].Slow.Judged != strings.Contains(told, "not judged") {
			t.Errorf("%s: %s %q, %+v; want %s with %q", c.name, r.Verdict, r.Reasons, *r.Lanes[0].Slow, c.want, c.text)
		}
		checkSchema(t, r)
	}
}
