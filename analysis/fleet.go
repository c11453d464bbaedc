package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The limits of missing records beyond which a fleet cannot be judged.
const (
	gapShare   = 0.10 // of the total time of the wanted workers, from the baseline to the end
	heardLeast = 0.5  // of the wanted workers, at each instant
)

// worker describes the fleet worker of a lane.
type worker struct {
	name    string        // empty for a lane of this machine
	wanted  int           // wanted workers
	joined  bool          // it was to begin later than the others
	clock   time.Duration // largest error of its clock
	clocked bool          // a clock bound was recorded
	gaps    []gap         // in order of their events
}

// gap is a missing record: a time whose attempts may be missing.
type gap struct {
	from, to time.Duration
	seq      uint64 // every number below is in the record
	text     string
}

// addClockBound stores the largest error of a worker's clock.
func (a *Analysis) addClockBound(e record.Event, b record.ClockBound) {
	w := a.workerOf(e, b.Lane)
	switch {
	case w == nil:
	case !plausible(b.Bound):
		a.damaged("a clock event at %v has the impossible bound %v", e.At, b.Bound)
	default:
		w.clock, w.clocked = max(w.clock, b.Bound), true
	}
}

// addMissing stores a missing record.
func (a *Analysis) addMissing(e record.Event, m record.MissingRecord) {
	w := a.recorderOf(e, m.Lane)
	switch {
	case w == nil:
	case !plausible(m.From) || !plausible(m.To) || m.From > m.To:
		a.damaged("an event at %v states an impossible missing record, from %v to %v", e.At, m.From, m.To)
	default:
		w.gaps = append(w.gaps, gap{m.From, m.To, m.Seq, e.Text})
	}
}

// workerOf is the worker of a lane. For a lane that is not a declared lane of a fleet it is nil, and the record is damaged.
func (a *Analysis) workerOf(e record.Event, id uint16) *worker {
	i := slices.IndexFunc(a.Lanes, func(l *Lane) bool { return l.fleet.name != "" && l.ID == id })
	if i < 0 {
		a.damaged("an event (%s) at %v is about lane %d, which is no declared lane of a fleet", e.Kind(), e.At, id)
		return nil
	}
	return &a.Lanes[i].fleet
}

// recorderOf is the worker of a lane, or what stands for it on a measured lane of this machine.
func (a *Analysis) recorderOf(e record.Event, id uint16) *worker {
	if i := slices.IndexFunc(a.Lanes, func(l *Lane) bool { return l.ID == id && !l.Control }); i >= 0 {
		return &a.Lanes[i].fleet
	}
	return a.workerOf(e, id)
}

// lost reports whether a part of the worker's record is missing.
func (w *worker) lost() bool { return len(w.gaps) > 0 }

// gapBefore is how many of the attempt numbers in a range may be in missing records.
func (w *worker) gapBefore(from, to uint64) int {
	n := 0
	for _, g := range w.gaps {
		if first := max(from, g.seq); first < to {
			n = max(n, int(to-first))
		}
	}
	return n
}

// until is the later of an instant and the end of the last missing record, because the state during a missing record is unknown.
func (w *worker) until(at time.Duration) time.Duration {
	for _, g := range w.gaps {
		at = max(at, g.to)
	}
	return at
}

func (w *worker) report(node string) *FleetReport {
	if w.name == "" {
		return nil
	}
	r := &FleetReport{Worker: w.name, Node: node, ClockMs: units.MillisUp(w.clock), Gaps: []GapReport{}}
	for _, g := range w.gaps {
		r.Gaps = append(r.Gaps, GapReport{units.Seconds(g.from), units.Seconds(g.to), g.text})
	}
	return r
}

// fleet returns the measured lanes of workers.
func (a *Analysis) fleet() []*Lane {
	return slices.DeleteFunc(a.Measured(), func(l *Lane) bool { return l.fleet.name == "" })
}

// gaps describes the missing records. They count neither as success nor as the subject's loss.
func (a *Analysis) gaps() []string {
	const most = 20
	var told []string
	n := 0
	for _, l := range a.Measured() {
		of := "worker " + l.fleet.name
		if l.fleet.name == "" {
			of = "lane " + l.Name
		}
		for _, g := range l.fleet.gaps {
			if n++; n <= most {
				told = append(told, fmt.Sprintf("a gap in the record of %s from %s to %s: %s", of, units.At(units.Seconds(g.from)),
					units.At(units.Seconds(g.to)), FirstOf(g.text)))
			}
		}
	}
	if n > most {
		told = append(told, fmt.Sprintf("%s more in the record", units.Plural(n-most, "gap")))
	}
	return told
}

// unrecorded tells why a run without a loss is no pass: lanes of this machine have missing records, and the change may have been then.
// A fleet has limits instead, because its other workers have measured.
func (a *Analysis) unrecorded() []string {
	var longest gap
	lanes := 0
	for _, l := range a.Measured() {
		if l.fleet.name != "" || !l.fleet.lost() {
			continue
		}
		lanes++
		for _, g := range l.fleet.gaps {
			if g.to-g.from > longest.to-longest.from {
				longest = g
			}
		}
	}
	if lanes == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no loss was seen, but %s no record of a part of the time, the longest from %s to %s: what happened then is unknown",
		lanesHave(lanes), units.At(units.Seconds(longest.from)), units.At(units.Seconds(longest.to)))}
}

func lanesHave(n int) string {
	if n == 1 {
		return "1 lane has"
	}
	return units.Plural(n, "lane") + " have"
}

// badFleet returns why the records of the workers are too incomplete, or their clocks too inexact, for a verdict.
func (a *Analysis) badFleet() []string {
	lanes := a.fleet()
	if len(lanes) == 0 {
		return nil
	}
	var why []string
	wanted := 0
	for _, l := range lanes {
		wanted = max(wanted, l.fleet.wanted)
		if !l.fleet.clocked && len(l.Records) > 0 {
			why = append(why, fmt.Sprintf("nothing says how far the clock of worker %s was off", l.fleet.name))
		}
	}
	baseline, began := a.Phase("baseline")
	end, ended := a.Phase("end")
	if !began || !ended || end.From <= baseline.From {
		return why // badPhases reports it
	}
	c := coverageOf(lanes, baseline.From, end.From)
	if share := 1 - float64(c.whole)/(float64(wanted)*float64(end.From-baseline.From)); share > gapShare {
		why = append(why, fmt.Sprintf("%.1f %% of the time of %s is not in the record, %.0f %% is the limit", 100*share, units.Plural(wanted, "worker"), 100*gapShare))
	}
	if float64(c.least) < heardLeast*float64(wanted) {
		why = append(why, fmt.Sprintf("at %s only %d of %s have a record, half of them is the least", units.At(units.Seconds(c.at)), c.least, units.Plural(wanted, "worker")))
	}
	return why
}

// coverage is the part of a time that the records of a fleet's lanes cover.
type coverage struct {
	whole time.Duration // over all lanes
	least int           // smallest number of lanes at one instant
	at    time.Duration
}

func coverageOf(lanes []*Lane, from, to time.Duration) coverage {
	type edge struct {
		at time.Duration
		by int
	}
	edges := []edge{{from, 0}}
	var c coverage
	for _, l := range lanes {
		if len(l.Records) == 0 {
			continue
		}
		// The first and last attempts of a lane may be this far from the phases.
		slack := coverageSlack + l.Interval
		begin, end := l.Begin-slack, l.end+slack+l.Deadline
		if l.fleet.joined { // by its first attempt, and not by a phase
			begin = l.Begin - l.Interval
		}
		for _, g := range l.fleet.gaps {
			end = min(end, g.from)
		}
		if begin, end = max(begin, from), min(end, to); begin < end {
			c.whole += end - begin
			edges = append(edges, edge{begin, 1}, edge{end, -1})
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(y.by, x.by)) })
	now := 0
	c.least = len(lanes) + 1
	for i, e := range edges {
		now += e.by
		if last := i+1 == len(edges) || edges[i+1].at > e.at; last && e.at < to && now < c.least {
			c.least, c.at = now, e.at
		}
	}
	return c
}
