package reports

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
)

// fleetLab is a run without loss, with workers beside the lane of this machine, each with a clock that is off by up to 3 ms.
func fleetLab(workers int) *lab {
	o := clean()
	s := o.start(o.lab())
	for i := range workers {
		s.addWorker(100+i, workers, baselineAt-500*time.Millisecond, o.endAt())
	}
	return s
}

func (s *lab) addWorker(id, workers int, from, to time.Duration) {
	name := fmt.Sprintf("fleet-%d", id)
	s.probe(simLane{id: uint16(id), name: name, target: webAddress, rate: 10, from: from, to: to})
	s.declared(id)["worker"], s.declared(id)["workers"] = name, strconv.Itoa(workers)
	s.event(2*time.Second, record.KindClockBound, "", name, "compared", "lane", strconv.Itoa(id), "boundNs", "3000000")
}

// declared is the declaration of a lane.
func (s *lab) declared(id int) map[string]string {
	i := slices.IndexFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindLane && e.Attrs["id"] == strconv.Itoa(id) })
	return s.events[i].Attrs
}

// kill ends a worker at an instant, with every third of the attempts of the second before: those were under way.
func (s *lab) kill(id int, at time.Duration) (first record.Attempt) {
	s.attempts = slices.DeleteFunc(s.attempts, func(a record.Attempt) bool {
		gone := int(a.Lane) == id && (a.Intended > at || a.Intended > at-time.Second && a.Seq%3 == 0)
		if gone && (first.Intended == 0 || a.Seq < first.Seq) {
			first = a
		}
		return gone
	})
	return first
}

func (s *lab) state(id int, first record.Attempt, to time.Duration) {
	s.event(clean().endAt()+time.Second, record.KindMissingRecord, "", "fleet-"+strconv.Itoa(id), "its pod is gone", "lane", strconv.Itoa(id),
		"fromNs", strconv.Itoa(int(first.Intended)), "toNs", strconv.Itoa(int(to)), "seq", strconv.Itoa(int(first.Seq)))
}

// Lost workers are stated, and the rest is judged: nothing of theirs is a success, and nothing a loss of the subject's.
func TestLostWorkersAreStatedGaps(t *testing.T) {
	s := fleetLab(20)
	end := clean().endAt()
	s.state(103, s.kill(103, 50*time.Second), end)
	s.state(117, s.kill(117, 60*time.Second), 64*time.Second)
	s.addWorker(120, 20, 64*time.Second, end)
	s.declared(120)["joined"] = "true"
	r := s.report(t)
	checkSchema(t, r)
	if r.Verdict != Pass || len(r.Reasons) != 3 || !strings.HasPrefix(r.Reasons[1], "a gap in the record of worker fleet-103 from +49.") ||
		!strings.Contains(r.Reasons[2], "its pod is gone") {
		t.Errorf("%s: %q, want pass with two gaps", r.Verdict, r.Reasons)
	}
	for name, write := range map[string]func(io.Writer, *Report, record.Origin) error{"terminal": WriteTerminal, "summary": WriteMarkdown} {
		var b strings.Builder
		if err := write(&b, r, record.Origin{}); err != nil || strings.Count(b.String(), "a gap in the record of worker") != 2 {
			t.Errorf("the %s does not tell of the two gaps (%v):\n%s", name, err, b.String())
		}
	}
	for _, l := range r.Lanes {
		lost := l.Name == "fleet-103" || l.Name == "fleet-117"
		if (l.Name == "web") != (l.Fleet == nil) || l.Fleet != nil && (l.Fleet.ClockMs != 3 || (len(l.Fleet.Gaps) == 1) != lost) {
			t.Errorf("lane %s has %+v", l.Name, l.Fleet)
		}
	}
	s.faults = append(s.faults, fault{lane: 130, from: 45 * time.Second, to: 46 * time.Second, class: record.Refused})
	s.addWorker(130, 20, baselineAt, end)
	if r := s.report(t); r.Verdict != Fail || !strings.Contains(strings.Join(r.Reasons, "\n"), "a gap in the record of worker fleet-103") {
		t.Errorf("%s: %q, want fail with the gaps", r.Verdict, r.Reasons)
	}
}

// Each way in which a fleet's record can be worth nothing makes the run invalid.
func TestAFleetThatCannotBeTrusted(t *testing.T) {
	end := clean().endAt()
	for name, c := range map[string]struct {
		damage func(*lab)
		want   string
	}{
		"a lost worker that nobody states": {func(s *lab) { s.kill(103, 50*time.Second) }, "lane fleet-103 "},
		"a number that is missing below the gap": {func(s *lab) {
			s.state(103, s.kill(103, 50*time.Second), end)
			i := slices.IndexFunc(s.attempts, func(a record.Attempt) bool { return a.Lane == 103 && a.Seq == 200 })
			s.attempts = slices.Delete(s.attempts, i, i+1)
		}, "lane fleet-103 lost records: "},
		"an attempt that stands twice": {func(s *lab) {
			i := slices.IndexFunc(s.attempts, func(a record.Attempt) bool { return a.Lane == 103 && a.Seq == 200 })
			s.attempts = append(s.attempts, s.attempts[i])
		}, "and 1 stand twice"},
		"too many gaps": {func(s *lab) {
			for id := 100; id < 105; id++ {
				s.state(id, s.kill(id, 40*time.Second), end)
			}
		}, "of the time of 20 workers is not in the record, 10 % is the limit"},
		"most workers gone for a moment": {func(s *lab) {
			for id := 100; id < 111; id++ {
				s.state(id, s.kill(id, end-4*time.Second), end)
			}
		}, "only 9 of 20 workers have a record, half"},
		"a worker that was never heard": {func(s *lab) {
			for id := 100; id < 103; id++ {
				s.state(id, s.kill(id, 0), end)
			}
		}, "of the time of 20 workers"},
		"a clock that nobody compared": {func(s *lab) {
			s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindClockBound && e.Attrs["lane"] == "104" })
		}, "how far the clock of worker fleet-104 was off"},
		"a gap of no worker":               {func(s *lab) { s.state(0, record.Attempt{}, end) }, "no declared lane of a fleet"},
		"a gap that ends before it begins": {func(s *lab) { s.state(100, record.Attempt{Intended: end}, time.Second) }, "impossible missing record"},
		"a clock without a bound":          {func(s *lab) { s.event(time.Second, record.KindClockBound, "", "x", "x", "lane", "100") }, "boundNs is missing"},
		"a fleet of nobody knows how many": {func(s *lab) { s.declared(100)["workers"] = "many" }, `workers="many"`},
		"a worker that began late":         {func(s *lab) { s.addWorker(120, 21, 64*time.Second, end) }, "lane fleet-120 began at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleetLab(20)
			c.damage(s)
			if r := s.report(t); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), c.want) {
				t.Errorf("%s: %q, want invalid with %q", r.Verdict, r.Reasons, c.want)
			}
		})
	}
}

// The bounds of an outage hold its truth however a worker's clock was off at its two ends, as far as the bound says; without
// the bound they do not.
func TestBoundsAllowForAWorkersClock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := fleetLab(1)
		s.attempts = nil // what the others saw is not asked
		from := 45*time.Second + time.Duration(rapid.IntRange(0, 999).Draw(rt, "from"))*time.Millisecond
		long := time.Duration(rapid.IntRange(500, 3000).Draw(rt, "long")) * time.Millisecond
		bound := time.Duration(rapid.IntRange(5, 400).Draw(rt, "bound")) * time.Millisecond
		early := time.Duration(rapid.Int64Range(-int64(bound), int64(bound)).Draw(rt, "early"))
		late := time.Duration(rapid.Int64Range(-int64(bound), int64(bound)).Draw(rt, "late"))
		late = max(late, early-90*time.Millisecond) // a clock that is off does not put ten attempts a second in another order
		s.faults = append(s.faults, fault{lane: 101, from: from, to: from + long, class: record.Refused})
		s.addWorker(101, 1, baselineAt, clean().endAt())
		for i := range s.attempts {
			if a := &s.attempts[i]; a.Lane == 101 && a.Intended < from+long/2 {
				a.Intended, a.Start = a.Intended+early, a.Start+early
			} else if a.Lane == 101 {
				a.Intended, a.Start = a.Intended+late, a.Start+late
			}
		}
		s.event(2*time.Second, record.KindClockBound, "", "x", "compared", "lane", "101", "boundNs", strconv.Itoa(int(bound)))
		r := s.report(t)
		o := laneNamed(r, "fleet-101").Outages
		if len(o) != 1 || o[0].LowerMs > millis(long) || o[0].UpperMs < millis(long) {
			rt.Errorf("outages %+v, want one whose bounds hold %v", o, long)
		}
	})
}

func laneNamed(r *Report, name string) LaneReport {
	return r.Lanes[slices.IndexFunc(r.Lanes, func(l LaneReport) bool { return l.Name == name })]
}

// An event explains what seems to begin before it, as far as the clocks may be apart, and no further.
func TestAttributionAllowsForAWorkersClock(t *testing.T) {
	for bound, explained := range map[time.Duration]bool{3 * time.Millisecond: false, 250 * time.Millisecond: true} {
		s := fleetLab(1)
		at := 50 * time.Second
		s.event(at, record.KindProxy, "node-9", "kube-proxy", "killed", "state", "killed")
		s.faults = append(s.faults, fault{lane: 101, from: at, to: at + 2*time.Second, class: record.Refused})
		s.addWorker(101, 1, baselineAt, clean().endAt())
		s.declared(101)["node"] = "node-9"
		for i := range s.attempts {
			if a := &s.attempts[i]; a.Lane == 101 {
				a.Intended, a.Start = a.Intended-240*time.Millisecond, a.Start-240*time.Millisecond
			}
		}
		s.event(2*time.Second, record.KindClockBound, "", "x", "compared", "lane", "101", "boundNs", strconv.Itoa(int(bound)))
		o := laneNamed(s.report(t), "fleet-101").Outages
		if len(o) != 1 || (o[0].Cause.Event == "proxy killed") != explained || explained != strings.Contains(o[0].Cause.Text, "give or take 250 ms between two clocks") {
			t.Errorf("with clocks apart by %v: %+v", bound, o)
		}
	}
}
