package analysis

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// Outage is a maximal interval on one path (a lane and the node that the balancer chose) with failed attempts only.
type Outage struct {
	Lane  *Lane
	node  uint16
	epoch int32 // index of the membership when it began

	from, to     time.Duration // intended starts of the first and the last failed attempt
	lower, upper time.Duration // bounds of the true duration
	before       time.Duration // start of the last good attempt before, or the beginning of the path
	struck       time.Duration // latest time at which the first failed attempt met the fault
	after        time.Duration // when the path was certainly good again, or ended
	told         time.Duration // when the last outcome was known
	classes      map[record.Class]int
	failed       int
	backends     map[uint32]int // of the failed attempts that were answered
	lastBackend  uint32         // backend of the last good attempt before
	healthy      bool           // the path was good before
	left         time.Duration  // when the load balancer removed the node while the path failed; 0 if it did not
	open         bool           // it lasted until the end of the lane
	cause        cause
	chosen       []chosen // the kernel's recorded choices for failed attempts
	met          []string // the pods among them
}

// pathKey identifies a path of a lane. A node that left the membership and returned is another path, because nothing was measured
// in between. Behind a load balancer that terminates connections, attempts without a node are the path from the client to the load
// balancer; every other attempt proves that this path is good.
type pathKey struct {
	node   uint16
	tenure int
}

// pathState is the state of a path after the attempts so far.
type pathState struct {
	good        *Sample
	first, last *Sample // of the failed attempts since
	current     *Outage
	tenure      *record.Tenure // nil without a load balancer's choice
}

// outagesOf finds the outages of a lane. It visits attempts in the order of their actual starts, in which they met the system. The
// times of an outage are scheduled starts.
//
// The bounds contain the true duration even when attempts start late by more than an interval:
// lower = last failed - first failed, upper = first good after - last good before, each taken between intended and
// between actual starts, whichever is the safer, and allowing for the time that a first packet needs to the node.
func outagesOf(l *Lane, ts record.Memberships, nodes []string) []*Outage {
	paths := map[pathKey]*pathState{}
	var found []*Outage
	var order []*pathState
	var front *pathState // from the client to a load balancer that terminates connections; all paths share it
	if ts.Logged() {
		front = &pathState{}
		paths[pathKey{0, -1}], order = front, append(order, front)
	}
	for i := range l.Records {
		r := &l.Records[i]
		if r.Class == record.Probe {
			continue
		}
		node := nodes[r.Node]
		key := pathKey{r.Node, ts.MemberSince(node, r.epoch)}
		if front != nil && node == "" {
			key.tenure = -1
		} else if front != nil {
			front.pass(l, r)
		}
		p := paths[key]
		if p == nil {
			p = &pathState{tenure: ts.Tenure(node, key.tenure)}
			paths[key], order = p, append(order, p)
		}
		if o := p.take(l, r); o != nil {
			found = append(found, o)
		}
	}
	for _, p := range order {
		if p.current != nil {
			p.close(l, nil)
		}
	}
	slices.SortStableFunc(found, func(a, b *Outage) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(nodes[a.node], nodes[b.node]))
	})
	return found
}

// take adds an attempt to its path, and returns the outage that begins with it, if one does.
func (p *pathState) take(l *Lane, r *Sample) *Outage {
	if !r.failed() {
		p.pass(l, r)
		return nil
	}
	var begun *Outage
	if p.current == nil {
		begun = &Outage{Lane: l, node: r.Node, epoch: r.epoch, from: r.Intended, to: r.Intended, classes: map[record.Class]int{}, backends: map[uint32]int{}}
		if p.good != nil {
			begun.lastBackend, begun.healthy = p.good.Backend, true
		}
		begun.struck = r.Start() + l.reach(r)
		p.current, p.first = begun, r
	}
	o := p.current
	o.from, o.to = min(o.from, r.Intended), max(o.to, r.Intended)
	o.told = max(o.told, r.Start()+time.Duration(r.total)*time.Microsecond)
	o.classes[r.Class]++
	o.failed++
	if r.Backend != 0 {
		o.backends[r.Backend]++
	}
	p.last = r
	return begun
}

// pass adds an attempt that proves the path good, even if it failed behind the path.
func (p *pathState) pass(l *Lane, r *Sample) {
	if p.current != nil {
		p.close(l, r)
	}
	p.good = r
}

// close ends the current outage with the good attempt that ended it. Without one, the outage ends when the load balancer removed the
// node, or with the lane.
func (p *pathState) close(l *Lane, good *Sample) {
	o, first, last := p.current, p.first, p.last
	p.current = nil
	o.lower = max(0, min(last.Intended-first.Intended, last.Start()-first.Start()-l.reach(first)))

	beforeIntended, beforeStart := p.opening(l)
	afterIntended, afterStart := l.end, l.end
	switch {
	case good != nil:
		afterIntended, afterStart = good.Intended, good.Start()+l.reach(good)
	case p.tenure != nil && p.tenure.Left:
		// A packet sent just before the removal reached the node a little later.
		end := max(p.tenure.Until+l.connect, last.Start()+l.reach(last))
		afterIntended, afterStart = end, end
		if p.tenure.Until >= first.Intended { // connections stay on a node that was removed before, and may fail there
			o.left = p.tenure.Until
		}
	default:
		o.open = true
		afterIntended, afterStart = l.fleet.until(afterIntended), l.fleet.until(afterStart)
	}
	o.before, o.after = beforeStart, afterStart
	o.upper = max(afterIntended-beforeIntended, afterStart-beforeStart)
	// The clock of a worker may be wrong at each end of the outage, in either direction.
	o.lower, o.upper = max(0, o.lower-2*l.fleet.clock), o.upper+2*l.fleet.clock
}

// opening is the start of the last good attempt before the outage, scheduled and actual. Without one it is the time at which the
// load balancer added the node, or the begin of the lane.
func (p *pathState) opening(l *Lane) (intended, start time.Duration) {
	if p.good != nil {
		return p.good.Intended, p.good.Start()
	}
	from := l.Begin
	if p.tenure != nil {
		from = max(from, p.tenure.From)
	}
	return min(from, p.first.Intended), min(from, p.first.Start())
}

// backend is the backend that answered most of the failed attempts; when none was answered, the one that answered the
// last good attempt before.
func (o *Outage) backend() uint32 {
	best := o.lastBackend
	for _, b := range slices.Sorted(maps.Keys(o.backends)) {
		if o.backends[b] > o.backends[best] {
			best = b
		}
	}
	return best
}

// EvidenceSpan is the time before and after an outage whose events are shown with it.
const EvidenceSpan = 2 * time.Second

// EachFailed visits the outage's failed attempts.
func (o *Outage) EachFailed(visit func(*Sample)) {
	l := o.Lane
	for i := l.RecordAt(o.from); i < len(l.Records) && l.Records[i].Start() <= o.to+l.latest; i++ {
		if r := &l.Records[i]; r.failed() && r.Node == o.node && r.Intended >= o.from && r.Intended <= o.to {
			visit(r)
		}
	}
}

// FailureKind groups failures of several runs: same lane, same class, and a cause of the same kind.
type FailureKind struct {
	Lane, Class string
	Event       string // as in CauseReport; empty when nothing explains them
}

// Compare orders kinds by lane, class and cause.
func (k FailureKind) Compare(other FailureKind) int {
	return cmp.Or(cmp.Compare(k.Lane, other.Lane), cmp.Compare(k.Class, other.Class), cmp.Compare(k.Event, other.Event))
}

// String describes the kind in words.
func (k FailureKind) String() string {
	if k.Event == "" {
		return k.Class + ", unexplained, on " + k.Lane
	}
	return k.Class + " after \"" + k.Event + "\" on " + k.Lane
}

// Failures are the failures of one kind in one run.
type Failures struct {
	Lane        string `yaml:"lane" json:"lane"`
	Class       string `yaml:"class" json:"class"`
	Event       string `yaml:"event" json:"event"`
	Connections int    `yaml:"connections" json:"connections"`
}

// Kind is the kind of the failures.
func (f Failures) Kind() FailureKind { return FailureKind{f.Lane, f.Class, f.Event} }

// Failures counts the failures of the measured lanes by their kinds, in the order of the kinds.
func (r *Report) Failures() []Failures {
	counted := map[FailureKind]int{}
	for _, o := range r.AllOutages() {
		for class, n := range o.Classes {
			counted[FailureKind{o.Lane, class, o.Cause.Event}] += n
		}
	}
	var all []Failures
	for _, k := range slices.SortedFunc(maps.Keys(counted), FailureKind.Compare) {
		all = append(all, Failures{k.Lane, k.Class, k.Event, counted[k]})
	}
	return all
}
