package analysis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// Each way in which a fleet's record can be worth nothing makes the run invalid.
func TestAFleetThatCannotBeTrusted(t *testing.T) {
	end := recordtest.Clean().EndAt()
	for name, c := range map[string]struct {
		damage func(*recordtest.Lab)
		want   string
	}{
		"a lost worker that nobody states": {func(s *recordtest.Lab) { s.Kill(103, 50*time.Second) }, "lane fleet-103 "},
		"a number that is missing below the gap": {func(s *recordtest.Lab) {
			s.State(103, s.Kill(103, 50*time.Second), end)
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 103 && a.Seq == 200 })
			s.Attempts = slices.Delete(s.Attempts, i, i+1)
		}, "lane fleet-103 lost records: "},
		"an attempt that stands twice": {func(s *recordtest.Lab) {
			i := slices.IndexFunc(s.Attempts, func(a record.Attempt) bool { return a.Lane == 103 && a.Seq == 200 })
			s.Attempts = append(s.Attempts, s.Attempts[i])
		}, "and 1 stand twice"},
		"too many gaps": {func(s *recordtest.Lab) {
			for id := 100; id < 105; id++ {
				s.State(id, s.Kill(id, 40*time.Second), end)
			}
		}, "of the time of 20 workers is not in the record, 10 % is the limit"},
		"most workers gone for a moment": {func(s *recordtest.Lab) {
			for id := 100; id < 111; id++ {
				s.State(id, s.Kill(id, end-4*time.Second), end)
			}
		}, "only 9 of 20 workers have a record, half"},
		"a worker that was never heard": {func(s *recordtest.Lab) {
			for id := 100; id < 103; id++ {
				s.State(id, s.Kill(id, 0), end)
			}
		}, "of the time of 20 workers"},
		"a clock that nobody compared": {func(s *recordtest.Lab) {
			s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindClockBound && e.Attrs["lane"] == "104" })
		}, "how far the clock of worker fleet-104 was off"},
		"a gap of no lane":                 {func(s *recordtest.Lab) { s.State(99, record.Attempt{}, end) }, "no declared lane of a fleet"},
		"a gap that ends before it begins": {func(s *recordtest.Lab) { s.State(100, record.Attempt{Intended: end}, time.Second) }, "impossible missing record"},
		"a clock without a bound":          {func(s *recordtest.Lab) { s.Event(time.Second, record.KindClockBound, "", "x", "x", "lane", "100") }, "boundNs is missing"},
		"a fleet of nobody knows how many": {func(s *recordtest.Lab) { s.Declared(100)["workers"] = "many" }, `workers="many"`},
		"a worker that began late":         {func(s *recordtest.Lab) { s.AddWorker(120, 21, 64*time.Second, end) }, "lane fleet-120 began at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := recordtest.FleetLab(20)
			c.damage(s)
			if r := reportOf(t, s); r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), c.want) {
				t.Errorf("%s: %q, want invalid with %q", r.Verdict, r.Reasons, c.want)
			}
		})
	}
}

// A time in which all workers begin again has no record, however short it is. The new lanes begin at their first attempts.
func TestWorkersThatBeginAgainAtTheSameTime(t *testing.T) {
	end := recordtest.Clean().EndAt()
	for away, want := range map[time.Duration]Verdict{0: Pass, 1090 * time.Millisecond: Invalid} {
		s := recordtest.FleetLab(4)
		for i := range 4 {
			at := end - 20*time.Second
			if away > 0 {
				s.State(100+i, s.Kill(100+i, at), at+away)
				s.AddWorker(110+i, 4, at+away, end)
				s.Declared(110 + i)["joined"] = "true"
			}
		}
		if r := reportOf(t, s); r.Verdict != want {
			t.Errorf("workers away for %s: %s, want %s: %q", away, r.Verdict, want, r.Reasons)
		}
	}
}

// The bounds of an outage hold its truth however a worker's clock was off at its two ends, as far as the bound says; without
// the bound they do not.
func TestBoundsAllowForAWorkersClock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := recordtest.FleetLab(1)
		s.Attempts = nil // what the others saw is not asked
		from := 45*time.Second + time.Duration(rapid.IntRange(0, 999).Draw(rt, "from"))*time.Millisecond
		long := time.Duration(rapid.IntRange(500, 3000).Draw(rt, "long")) * time.Millisecond
		bound := time.Duration(rapid.IntRange(5, 400).Draw(rt, "bound")) * time.Millisecond
		early := time.Duration(rapid.Int64Range(-int64(bound), int64(bound)).Draw(rt, "early"))
		late := time.Duration(rapid.Int64Range(-int64(bound), int64(bound)).Draw(rt, "late"))
		late = max(late, early-90*time.Millisecond) // a clock that is off does not put ten attempts a second in another order
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 101, From: from, To: from + long, Class: record.Refused})
		s.AddWorker(101, 1, recordtest.BaselineAt, recordtest.Clean().EndAt())
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Lane == 101 && a.Intended < from+long/2 {
				a.Intended, a.Start = a.Intended+early, a.Start+early
			} else if a.Lane == 101 {
				a.Intended, a.Start = a.Intended+late, a.Start+late
			}
		}
		s.Event(2*time.Second, record.KindClockBound, "", "x", "compared", "lane", "101", "boundNs", strconv.Itoa(int(bound)))
		r := reportOf(t, s)
		o := laneNamed(r, "fleet-101").Outages
		if len(o) != 1 || o[0].LowerMs > units.Millis(long) || o[0].UpperMs < units.Millis(long) {
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
		s := recordtest.FleetLab(1)
		at := 50 * time.Second
		s.Event(at, record.KindProxy, "node-9", "kube-proxy", "killed", "state", "killed")
		s.Faults = append(s.Faults, recordtest.Fault{Lane: 101, From: at, To: at + 2*time.Second, Class: record.Refused})
		s.AddWorker(101, 1, recordtest.BaselineAt, recordtest.Clean().EndAt())
		s.Declared(101)["node"] = "node-9"
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Lane == 101 {
				a.Intended, a.Start = a.Intended-240*time.Millisecond, a.Start-240*time.Millisecond
			}
		}
		s.Event(2*time.Second, record.KindClockBound, "", "x", "compared", "lane", "101", "boundNs", strconv.Itoa(int(bound)))
		o := laneNamed(reportOf(t, s), "fleet-101").Outages
		if len(o) != 1 || (o[0].Cause.Event == "proxy killed") != explained || explained != strings.Contains(o[0].Cause.Text, "give or take 250 ms between two clocks") {
			t.Errorf("with clocks apart by %v: %+v", bound, o)
		}
	}
}
