package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// injection is a known fault that one lane must detect.
type injection struct {
	id, fault string
	node      string // the only node with the fault; empty for all
	lane      *Lane
	from, to  time.Duration
	found     *Outage
}

// classesOfFault are the classes of the attempts that meet a known fault, by its kind.
var classesOfFault = map[string][]record.Class{
	"drop":     {record.Delayed, record.ConnectTimeout, record.ReplyTimeout},
	"refuse":   {record.Refused, record.Rejected},
	"reset":    {record.Reset},
	"misroute": {record.Misrouted},
}

// shows reports whether most of an outage's attempts failed as the fault makes them fail.
func (i *injection) shows(o *Outage) bool {
	classes, known := classesOfFault[i.fault]
	if !known {
		return true
	}
	n := 0
	for _, c := range classes {
		n += o.classes[c]
	}
	return 2*n > o.failed
}

func (i *injection) text() string {
	return fmt.Sprintf("the injected %s of %s on lane %s at %s", i.fault, units.MsText(units.Millis(i.to-i.from)), i.lane.Name, units.At(units.Seconds(i.from)))
}

// proof is the result of the injected faults.
type proof struct {
	injections []injection
	broken     []string  // injections that cannot be judged, as sentences
	missed     []string  // injections that were not found
	alarms     []*Outage // control outages before the scenario that nobody injected
	floor      time.Duration
	proved     bool
}

// prove looks for every injected fault in the outages of its lane. The outages are computed without knowledge of the faults.
func (a *Analysis) prove() proof {
	var p proof
	p.pair(a)
	for i := range p.injections {
		in := &p.injections[i]
		in.found = a.seen(in)
	}
	p.missed = p.notFound(func(*injection) bool { return false })
	p.alarms = p.falseAlarms(a)
	var smallest time.Duration
	for _, in := range p.injections {
		if d := in.to - in.from; in.found != nil && (!p.proved || d < smallest) {
			smallest, p.proved = d, true
		}
	}
	var slowest time.Duration
	for _, l := range a.Measured() {
		slowest = max(slowest, l.Interval)
	}
	p.floor = max(smallest, 2*slowest)
	return p
}

// notFound are the injections that were not found, but for the excused ones, as sentences.
func (p *proof) notFound(excused func(*injection) bool) (missed []string) {
	for i := range p.injections {
		if in := &p.injections[i]; in.found == nil && !excused(in) {
			missed = append(missed, in.text()+" was not found")
		}
	}
	return missed
}

// pair joins the begin and the end of each injected fault by its id.
func (p *proof) pair(a *Analysis) {
	open := map[string]injection{}
	for _, e := range a.Events {
		f, is := e.Body.(record.Fault)
		if !is || !f.Control || f.Lane == "" {
			continue
		}
		id := f.ID + " " + f.Lane
		switch f.State {
		case "begin":
			i := slices.IndexFunc(a.Lanes, func(l *Lane) bool {
				return l.Name == f.Lane || strconv.Itoa(int(l.ID)) == f.Lane
			})
			if i < 0 {
				p.broken = append(p.broken, fmt.Sprintf("a fault was injected for lane %q, which does not exist", f.Lane))
				continue
			}
			open[id] = injection{id: f.ID, fault: f.Fault, node: NodeOf(e), lane: a.Lanes[i], from: e.At}
		case "end":
			if in, begun := open[id]; begun {
				in.to = e.At
				p.injections = append(p.injections, in)
				delete(open, id)
			}
		}
	}
	if len(open) > 0 {
		p.broken = append(p.broken, units.Plural(len(open), "injected fault")+" never ended")
	}
	slices.SortStableFunc(p.injections, func(x, y injection) int { return cmp.Compare(x.from, y.from) })
}

// seen returns an outage of the lane within the time of the fault, with its classes, whose bounds contain its duration. The slack of
// one interval allows for the error of the fault's recorded times.
func (a *Analysis) seen(in *injection) *Outage {
	gap, length := in.lane.Interval, in.to-in.from
	for _, o := range in.lane.Outages {
		if in.node != "" && a.Nodes[o.node] != in.node {
			continue
		}
		inside := o.to >= in.from-gap && o.from <= in.to+gap
		if inside && in.shows(o) && o.lower <= length+gap && o.upper+gap >= length {
			return o
		}
	}
	return nil
}

// falseAlarms are outages of proof lanes before the scenario that no injected fault explains. An attempt that started late may have
// met a fault after its scheduled time. An attempt that was under way when the scenario began may have met its first step. Later
// outages may be the subject's, and are only reported, so that they do not turn fail into invalid.
func (p *proof) falseAlarms(a *Analysis) []*Outage {
	until := a.End
	if s, ok := a.Phase("scenario"); ok {
		until = s.From
	}
	var alarms []*Outage
	for _, l := range a.controls() {
		var own []injection
		for _, in := range p.injections {
			if in.lane == l {
				own = append(own, in)
			}
		}
		for _, o := range l.Outages {
			explained := slices.ContainsFunc(own, func(in injection) bool {
				return max(o.from, o.struck) >= in.from-l.Interval && o.to <= in.to+l.Interval
			})
			before := max(o.from, o.struck)+l.connect < until // one more round trip
			if len(own) > 0 && !explained && before {
				alarms = append(alarms, o)
			}
		}
	}
	return alarms
}

// leastGaps is the number of gaps on a path from which their quantile is taken.
const leastGaps = 20

// nodeFloor is how long an outage of one node must last to meet an attempt: 95 % of the gaps between two attempts of a lane over the node are
// no longer. It is that of the path with the longest, and 0 if no measured lane of new connections has several nodes. A load balancer with
// turns makes gaps of N intervals with N nodes, and one that picks nodes at random makes gaps up to three times as long.
func (a *Analysis) nodeFloor() (longest time.Duration) {
	for _, l := range a.Measured() {
		if !l.Opens() {
			continue
		}
		paths, thinned := l.gapsOfNodes(a)
		for _, p := range paths {
			switch {
			case len(paths) < 2:
			case thinned: // the record has no single attempts where nothing happened
				longest = max(longest, l.Interval*time.Duration(l.attempts)/time.Duration(p.attempts))
			case len(p.gaps) >= leastGaps:
				slices.Sort(p.gaps)
				longest = max(longest, p.gaps[len(p.gaps)*95/100])
			}
		}
	}
	return longest
}

// nodeGaps are the times between the attempts over a node.
type nodeGaps struct {
	attempts int
	last     time.Duration
	gaps     []time.Duration
}

// gapsOfNodes returns the gaps of each node; thinned reports whether the record has buckets instead of some attempts.
func (l *Lane) gapsOfNodes(a *Analysis) (paths map[uint16]*nodeGaps, thinned bool) {
	paths = map[uint16]*nodeGaps{}
	for i := range l.Records {
		r := &l.Records[i]
		if a.Nodes[r.Node] == "" {
			continue
		}
		p := paths[r.Node]
		if p == nil {
			p = &nodeGaps{}
			paths[r.Node] = p
		} else {
			p.gaps = append(p.gaps, r.Intended-p.last)
		}
		thinned, p.last, p.attempts = thinned || r.bucket(), r.Intended, p.attempts+int(r.N)
	}
	return paths, thinned
}
