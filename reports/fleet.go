package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The limits beyond which the record of a fleet has lost too much to be judged.
const (
	gapShare   = 0.10 // of the time that the wanted workers had together, from the baseline to the end
	heardLeast = 0.5  // of the wanted workers, at each instant
)

// worker is what is known of the worker whose history a lane has.
type worker struct {
	name    string        // empty for a lane of this machine
	wanted  int           // how many workers were
	joined  bool          // it was to begin later than the others
	clock   time.Duration // how far its clock was off at most
	clocked bool          // whether anything says so
	gaps    []gap         // in order of their events
}

// gap is a time of which the record says that attempts of it may be missing.
type gap struct {
	from, to time.Duration
	seq      uint64 // every number below is in the record
	text     string
}

// declare reads what a lane's declaration says of its worker.
func (w *worker) declare(attrs map[string]string) (err error) {
	w.name, w.joined = attrs["worker"], attrs["joined"] == "true"
	if w.name == "" {
		return nil
	}
	if w.wanted, err = strconv.Atoi(attrs["workers"]); err != nil || w.wanted < 1 {
		return fmt.Errorf("of the worker %s of a fleet of %q workers, which is no number of them", w.name, attrs["workers"])
	}
	return nil
}

// takeFleet reads an EventClock or an EventGap.
func (a *analysis) takeFleet(e Event) error {
	i := slices.IndexFunc(a.lanes, func(l *lane) bool { return l.fleet.name != "" && strconv.Itoa(int(l.id)) == e.Attrs["lane"] })
	if i < 0 {
		return fmt.Errorf("an event (%s) at %v is about lane %q, which is no declared lane of a fleet", e.Kind, e.At, e.Attrs["lane"])
	}
	var ns [3]int64
	for k, key := range [...]string{"boundNs", "fromNs", "toNs"} {
		if text, has := e.Attrs[key]; has {
			var err error
			if ns[k], err = strconv.ParseInt(text, 10, 64); err != nil || !plausible(time.Duration(ns[k])) {
				return fmt.Errorf("an event (%s) at %v has the impossible %s %q", e.Kind, e.At, key, text)
			}
		} else if (key == "boundNs") == (e.Kind == EventClock) {
			return fmt.Errorf("an event (%s) at %v has no %s", e.Kind, e.At, key)
		}
	}
	w := &a.lanes[i].fleet
	if e.Kind == EventClock {
		w.clock, w.clocked = max(w.clock, time.Duration(ns[0])), true
		return nil
	}
	seq, err := strconv.ParseUint(e.Attrs["seq"], 10, 64)
	if err != nil || ns[1] > ns[2] {
		return fmt.Errorf("a gap at %v from %v to %v and from number %q on cannot be", e.At, time.Duration(ns[1]), time.Duration(ns[2]), e.Attrs["seq"])
	}
	w.gaps = append(w.gaps, gap{time.Duration(ns[1]), time.Duration(ns[2]), seq, e.Text})
	return nil
}

// lost reports whether a part of the worker's history never came.
func (w *worker) lost() bool { return len(w.gaps) > 0 }

// gapBefore is how many of the numbers from one up to another a stated gap may have.
func (w *worker) gapBefore(from, to uint64) int {
	n := 0
	for _, g := range w.gaps {
		if first := max(from, g.seq); first < to {
			n = max(n, int(to-first))
		}
	}
	return n
}

// until is an instant, or the end of the last gap when that is later: what was so before it may have been so all the while.
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
	r := &FleetReport{Worker: w.name, Node: node, ClockMs: millisUp(w.clock), Gaps: []GapReport{}}
	for _, g := range w.gaps {
		r.Gaps = append(r.Gaps, GapReport{seconds(g.from), seconds(g.to), g.text})
	}
	return r
}

// fleet are the lanes of workers that count as the subject's.
func (a *analysis) fleet() []*lane {
	return slices.DeleteFunc(a.measured(), func(l *lane) bool { return l.fleet.name == "" })
}

// gaps states what is missing from the histories of workers: it is no success, and no loss of the subject's.
func (a *analysis) gaps() []string {
	const most = 20
	var told []string
	n := 0
	for _, l := range a.fleet() {
		for _, g := range l.fleet.gaps {
			if n++; n <= most {
				told = append(told, fmt.Sprintf("a gap in the record of worker %s from %s to %s: %s", l.fleet.name, atText(seconds(g.from)),
					atText(seconds(g.to)), firstOf(g.text)))
			}
		}
	}
	if n > most {
		told = append(told, fmt.Sprintf("%s more in the record of workers", plural(n-most, "gap")))
	}
	return told
}

// badFleet tells when the workers' histories are too incomplete, or their clocks too unknown, for a verdict.
func (a *analysis) badFleet() []string {
	lanes := a.fleet()
	if len(lanes) == 0 {
		return nil
	}
	var why []string
	wanted := 0
	for _, l := range lanes {
		wanted = max(wanted, l.fleet.wanted)
		if !l.fleet.clocked && len(l.records) > 0 {
			why = append(why, fmt.Sprintf("nothing says how far the clock of worker %s was off", l.fleet.name))
		}
	}
	baseline, began := a.phase("baseline")
	end, ended := a.phase("end")
	if !began || !ended || end.from <= baseline.from {
		return why // told by badPhases
	}
	c := coverageOf(lanes, baseline.from, end.from)
	if share := 1 - float64(c.whole)/(float64(wanted)*float64(end.from-baseline.from)); share > gapShare {
		why = append(why, fmt.Sprintf("%.1f %% of the time of %s is not in the record, %.0f %% is the limit", 100*share, plural(wanted, "worker"), 100*gapShare))
	}
	if float64(c.least) < heardLeast*float64(wanted) {
		why = append(why, fmt.Sprintf("at %s only %d of %s have a record, half of them is the least", atText(seconds(c.at)), c.least, plural(wanted, "worker")))
	}
	return why
}

// coverage is how much of a time the records of a fleet's lanes cover.
type coverage struct {
	whole time.Duration // over all lanes
	least int           // lanes at the instant at which they were fewest
	at    time.Duration
}

func coverageOf(lanes []*lane, from, to time.Duration) coverage {
	type edge struct {
		at time.Duration
		by int
	}
	edges := []edge{{from, 0}}
	var c coverage
	for _, l := range lanes {
		if len(l.records) == 0 {
			continue
		}
		// As much may lie between the phases and any lane's first and last attempts.
		slack := coverageSlack + l.gap
		begin, end := l.begin-slack, l.end+slack+l.deadline
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
