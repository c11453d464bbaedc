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
	target    string // where it is on the path to an address; empty where it is on a lane
	lane      *Lane
	from, to  time.Duration // as they were recorded
	// first and last bound the times at which an attempt may meet it.
	first, last time.Duration
	found       *Outage
}

// orderSlack bounds the time from the begin or the end of a lane until the run has recorded it.
const orderSlack = 50 * time.Millisecond

// bound sets the time at which attempts may meet the fault. A lane that begins and ends with its fault, as that of wrong answers, knows it
// better than the run, which records when its orders were carried out.
func (i *injection) bound() {
	i.first, i.last = i.from, i.to
	if l := i.lane; l.Begin > i.from-orderSlack && l.end < i.to+orderSlack {
		i.first, i.last = min(i.from, l.Begin), max(i.to, l.end)
	}
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
	missed     []string  // injections that were not found, of the proof before the scenario
	unproved   []string  // kinds of lanes for which that proof had no fault
	alarms     []*Outage // control outages before the scenario that nobody injected
	rounds     []round   // the proofs of the run, in order of time; none in an older record
	floor      time.Duration
	proved     bool
}

// round is one proof of a run.
type round struct {
	number   int
	kinds    []string // that the run measures
	from, to time.Duration
	unmade   string   // why it could not be made, or did not end
	missed   []string // kinds without a fault, and faults that were not found, as sentences
	spoiled  bool     // a measured lane failed at the same time, so that the subject may have hidden them
}

// prove looks for every injected fault in the outages of its lane. The outages are computed without knowledge of the faults.
func (a *Analysis) prove() proof {
	var p proof
	p.pair(a)
	for i := range p.injections {
		in := &p.injections[i]
		in.found = a.seen(in)
	}
	p.missed = p.notFound(func(in *injection) bool { return p.later(in) })
	p.judgeRounds(a)
	p.alarms = p.falseAlarms(a)
	var smallest time.Duration
	smallest, p.proved = p.smallest()
	var slowest time.Duration
	for _, l := range a.Measured() {
		slowest = max(slowest, l.Interval)
	}
	p.floor = max(smallest, 2*slowest)
	return p
}

// smallest is the length of the shortest fault that was found. Where the record has a proof of each kind of lane, it is that of the kind
// and the proof with the longest.
func (p *proof) smallest() (longest time.Duration, proved bool) {
	type part struct {
		kind  string
		round int
	}
	all := map[part]time.Duration{}
	for _, in := range p.injections {
		of := part{}
		if i := p.roundOf(&in); i >= 0 {
			of = part{in.lane.Protocol, i}
			if !slices.Contains(p.rounds[i].kinds, of.kind) {
				continue
			}
		}
		d := in.to - in.from
		if least, has := all[of]; in.found != nil && (!has || d < least) {
			all[of] = d
		}
	}
	for _, d := range all {
		longest = max(longest, d)
	}
	return longest, len(all) > 0
}

// roundOf is the index of the round that injected a fault; -1 in a record without rounds.
func (p *proof) roundOf(in *injection) int {
	return slices.IndexFunc(p.rounds, func(r round) bool { return in.from >= r.from && in.to <= r.to })
}

// later reports whether a fault belongs to a proof after the first.
func (p *proof) later(in *injection) bool { return p.roundOf(in) > 0 }

// notFound are the injections that were not found, but for the excused ones, as sentences.
func (p *proof) notFound(excused func(*injection) bool) (missed []string) {
	for i := range p.injections {
		if in := &p.injections[i]; in.found == nil && !excused(in) {
			missed = append(missed, in.text()+" was not found"+p.kindClause(in))
		}
	}
	return missed
}

// kindClause names the kind of lane that missed a fault, where each kind has its proof.
func (p *proof) kindClause(in *injection) string {
	if len(p.rounds) == 0 || in.lane.Protocol == "" {
		return ""
	}
	return fmt.Sprintf(": lanes of kind %s did not see it", in.lane.Protocol)
}

// rounds are the proofs of the run. One that does not end lasts until the next, or until the end of the run.
func (a *Analysis) rounds() (all []round) {
	for _, e := range a.Events {
		b, is := e.Body.(record.Proof)
		if !is {
			continue
		}
		last := len(all) - 1
		switch {
		case b.State == record.ProofBegin:
			all = append(all, round{number: b.Number, kinds: b.Kinds, from: e.At, to: a.End, unmade: "it did not end"})
		case b.State == record.ProofUnmade:
			all = append(all, round{number: b.Number, kinds: b.Kinds, from: e.At, to: e.At, unmade: FirstOf(e.Text)})
		case b.State == record.ProofEnd && last >= 0 && all[last].number == b.Number:
			all[last].to, all[last].unmade = e.At, ""
		}
	}
	return all
}

// Proving returns a function that reports whether the detector was being proved at a time.
func (a *Analysis) Proving() func(at time.Duration) bool {
	rounds := a.rounds()
	return func(at time.Duration) bool {
		return slices.ContainsFunc(rounds, func(r round) bool { return at >= r.from && at < r.to })
	}
}

// judgeRounds finds the kinds that the first round did not prove, and for each later one also the faults that were not found.
func (p *proof) judgeRounds(a *Analysis) {
	for i := range p.rounds {
		r := &p.rounds[i]
		if r.unmade != "" {
			continue
		}
		unproved := p.kindsWithout(a, i)
		if i == 0 {
			p.unproved = unproved
			continue
		}
		r.missed = append(unproved, p.notFound(func(in *injection) bool { return p.roundOf(in) != i })...)
		r.spoiled = len(r.missed) > 0 && a.failedIn(r.from, r.to)
	}
}

// kindsWithout are the kinds of measured lanes for which a round injected no fault that they can see, as sentences.
func (p *proof) kindsWithout(a *Analysis, i int) (why []string) {
	r := &p.rounds[i]
	kinds := slices.Clone(r.kinds)
	for _, l := range a.Measured() {
		if l.Protocol != "" && !slices.Contains(kinds, l.Protocol) {
			kinds = append(kinds, l.Protocol)
		}
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(p.injections, func(in injection) bool { return in.lane.Protocol == kind && p.roundOf(&in) == i }) {
			why = append(why, fmt.Sprintf("the proof at %s had no control lane of kind %s with a fault that it can see", units.At(units.Seconds(r.from)), kind))
		}
	}
	return why
}

// failedIn reports whether a measured lane failed in a time.
func (a *Analysis) failedIn(from, to time.Duration) bool {
	return slices.ContainsFunc(a.Measured(), func(l *Lane) bool {
		return slices.ContainsFunc(l.Outages, func(o *Outage) bool { return o.from <= to && o.after >= from })
	})
}

// doubt is what is wrong with the proofs after the first. Its zero value is none.
type doubt struct {
	since    time.Duration // the end of the last good proof before
	why      []string      // of the first proof that was not good, as sentences
	detector bool          // the detector has failed; else the subject may have prevented the proof
}

// provedUntil is the end of the last proof up to which all are good.
func (p *proof) provedUntil() (at time.Duration) {
	for i, r := range p.rounds {
		if i > 0 && (r.unmade != "" || len(r.missed) > 0) {
			break
		}
		at = r.to
	}
	return at
}

// doubt returns what is wrong with the proofs after the first.
func (p *proof) doubt() (d doubt) {
	for i, r := range p.rounds {
		if i == 0 || r.unmade == "" && len(r.missed) == 0 {
			continue
		}
		if d.why == nil {
			d.since, d.why = p.provedUntil(), slices.Clone(r.missed)
			if r.unmade != "" {
				d.why = []string{r.unmade}
			}
		}
		d.detector = d.detector || len(r.missed) > 0 && !r.spoiled
	}
	return d
}

// texts are the reasons of a verdict.
func (d doubt) texts() []string {
	if d.why == nil {
		return nil
	}
	rest := "and the subject may be why it is not proved again"
	if d.detector {
		rest = "and what was measured later is invalid"
	}
	head := fmt.Sprintf("the detector is proved until %s, %s: ", units.At(units.Seconds(d.since)), rest)
	return append([]string{head + d.why[0]}, d.why[1:]...)
}

// pair finds the proofs, and joins the begin and the end of each injected fault by its id.
func (p *proof) pair(a *Analysis) {
	p.rounds = a.rounds()
	open := map[string]injection{}
	for _, e := range a.Events {
		f, is := e.Body.(record.Fault)
		if !is || !f.Control || f.Lane == "" {
			continue
		}
		id := f.ID + " " + f.Lane
		switch f.State {
		case record.FaultBegin:
			i := slices.IndexFunc(a.Lanes, func(l *Lane) bool {
				return l.Name == f.Lane || strconv.Itoa(int(l.ID)) == f.Lane
			})
			if i < 0 {
				p.broken = append(p.broken, fmt.Sprintf("a fault was injected for lane %q, which does not exist", f.Lane))
				continue
			}
			open[id] = injection{id: f.ID, fault: f.Fault, node: NodeOf(e), lane: a.Lanes[i], from: e.At, target: f.Target}
		case record.FaultEnd:
			if in, begun := open[id]; begun {
				in.to = e.At
				in.bound()
				p.injections = append(p.injections, in)
				delete(open, id)
			}
		}
	}
	if len(open) > 0 {
		p.broken = append(p.broken, units.Plural(len(open), "injected fault")+" never ended")
	}
	p.spread(a)
	slices.SortStableFunc(p.injections, func(x, y injection) int { return cmp.Compare(x.from, y.from) })
}

// spread adds each fault on the path to an address for the other control lanes of a proof that go there and can see it.
func (p *proof) spread(a *Analysis) {
	for _, in := range slices.Clone(p.injections) {
		i := p.roundOf(&in)
		if i < 0 {
			continue
		}
		for _, l := range a.controls() {
			other := l != in.lane && l.Role == "" && in.sharedWith(l)
			if other && l.Begin >= p.rounds[i].from && l.Begin <= p.rounds[i].to && record.Sees(l.Protocol, in.kind()) {
				own := in
				own.lane = l
				own.bound()
				p.injections = append(p.injections, own)
			}
		}
	}
}

// mayMeet reports whether a fault on a single node is on the path of a lane over a node: a lane with one flow need not meet it, but can.
func (i *injection) mayMeet(l *Lane, node string) bool {
	return i.node != "" && i.node == node && i.sharedWith(l)
}

// sharedWith reports whether a fault is on the path to the address of another lane.
func (i *injection) sharedWith(l *Lane) bool {
	return i.target != "" && l.Address == i.lane.Address && l.Datagrams() == i.lane.Datagrams()
}

// kind is the fault in the words of proofs.
func (i *injection) kind() record.ProofFault {
	if i.node != "" && i.fault == string(record.ProofDrop) {
		return record.ProofDropOnNode
	}
	return record.ProofFault(i.fault)
}

// seenBy are the outages of a control lane. One that keeps connections opens its next one over another node, and may not return for a
// while: its outages are those over all nodes, or those of two faults would be one.
func (a *Analysis) seenBy(l *Lane) []*Outage {
	if !l.Keeps() {
		return l.Outages
	}
	joint := *l
	joint.Records = slices.Clone(l.Records)
	for i := range joint.Records {
		joint.Records[i].Node, joint.Records[i].epoch = 0, -1
	}
	return outagesOf(&joint, record.Memberships{}, a.Nodes)
}

// seen returns an outage of the lane within the time of the fault, with its classes, whose bounds contain its duration. The slack of
// one interval allows for the error of the fault's recorded times.
func (a *Analysis) seen(in *injection) *Outage {
	gap, length := in.lane.Interval, in.to-in.from
	for _, o := range a.seenBy(in.lane) {
		if in.node != "" && a.Nodes[o.node] != in.node {
			continue
		}
		inside := o.to >= in.first-gap && o.from <= in.last+gap
		if inside && in.shows(o) && o.lower <= in.last-in.first+gap && o.upper+gap >= length {
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
		for _, o := range a.seenBy(l) {
			during := func(in injection) bool {
				return max(o.from, o.struck) >= in.first-l.Interval && o.to <= in.last+l.Interval
			}
			explained := slices.ContainsFunc(own, during) || slices.ContainsFunc(p.injections, func(in injection) bool {
				return in.mayMeet(l, a.Nodes[o.node]) && during(in)
			})
			before := max(o.from, o.struck)+max(l.connect, l.underWay(until)) < until
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
