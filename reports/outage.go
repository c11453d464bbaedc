package reports

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// outage is a maximal interval on one path (a lane and the node that the balancer chose) with failed attempts only.
type outage struct {
	lane  *lane
	node  uint16
	epoch int32 // number of the balancer's table when it began

	from, to     time.Duration // intended starts of the first and the last failed attempt
	lower, upper time.Duration // bounds of the true duration
	before       time.Duration // start of the last good attempt before, or the beginning of the path
	struck       time.Duration // when the first failed attempt had certainly met the fault
	after        time.Duration // when the path was good again for certain, or its end
	told         time.Duration // when the last outcome of the failed attempts was known
	classes      map[record.Class]int
	failed       int
	backends     map[uint32]int // of the failed attempts that were answered
	lastBackend  uint32         // that answered the last good attempt before
	left         time.Duration  // when the balancer left the path while it was failing; 0 when it did not
	open         bool           // it lasted until the end of the lane
	cause        cause
	chosen       []chosen // what the kernel gave those of the failed attempts that it was asked about
	met          []string // the pods among them
}

// pathKey tells the paths of a lane apart. A node that left the balancer's table and came back is another path: what
// happened to it meanwhile was not measured. Behind a balancer that terminates connections, what it gave to no node is
// a path of its own, with every other attempt as a proof that the way to the balancer was good.
type pathKey struct {
	node   uint16
	tenure int
}

// pathState is what has been seen of a path so far.
type pathState struct {
	good        *sample
	first, last *sample // of the failed attempts since
	current     *outage
	tenure      *record.Tenure // nil when no balancer chose
}

// outagesOf finds the outages of a lane. Attempts are taken in the order of their actual starts, because that is the
// order in which they met the system; an outage is dated by the intended starts.
//
// The bounds contain the true duration even when attempts start late by more than a gap:
// lower = last failed - first failed, upper = first good after - last good before, each taken between intended and
// between actual starts, whichever is the safer, and allowing for the time that a first packet needs to the node.
func outagesOf(l *lane, ts record.Memberships, nodes []string) []*outage {
	paths := map[pathKey]*pathState{}
	var found []*outage
	var order []*pathState
	var front *pathState // the way to a balancer that terminates connections, which all paths share
	if ts.Logged() {
		front = &pathState{}
		paths[pathKey{0, -1}], order = front, append(order, front)
	}
	for i := range l.records {
		r := &l.records[i]
		if r.class == record.Probe {
			continue
		}
		node := nodes[r.node]
		key := pathKey{r.node, ts.MemberSince(node, r.epoch)}
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
	slices.SortStableFunc(found, func(a, b *outage) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(nodes[a.node], nodes[b.node]))
	})
	return found
}

// take adds an attempt to its path, and returns the outage that begins with it, if one does.
func (p *pathState) take(l *lane, r *sample) *outage {
	if !r.failed() {
		p.pass(l, r)
		return nil
	}
	var begun *outage
	if p.current == nil {
		begun = &outage{lane: l, node: r.node, epoch: r.epoch, from: r.intended, to: r.intended, classes: map[record.Class]int{}, backends: map[uint32]int{}}
		if p.good != nil {
			begun.lastBackend = p.good.backend
		}
		begun.struck = r.start() + l.reach(r)
		p.current, p.first = begun, r
	}
	o := p.current
	o.from, o.to = min(o.from, r.intended), max(o.to, r.intended)
	o.told = max(o.told, r.start()+time.Duration(r.total)*time.Microsecond)
	o.classes[r.class]++
	o.failed++
	if r.backend != 0 {
		o.backends[r.backend]++
	}
	p.last = r
	return begun
}

// pass takes an attempt that found the path good, whatever became of it beyond.
func (p *pathState) pass(l *lane, r *sample) {
	if p.current != nil {
		p.close(l, r)
	}
	p.good = r
}

// close ends the current outage, with the good attempt that ended it, or without one: then the path ends where the
// balancer left the node, or with the lane.
func (p *pathState) close(l *lane, good *sample) {
	o, first, last := p.current, p.first, p.last
	p.current = nil
	o.lower = max(0, min(last.intended-first.intended, last.start()-first.start()-l.reach(first)))

	beforeIntended, beforeStart := p.opening(l)
	afterIntended, afterStart := l.end, l.end
	switch {
	case good != nil:
		afterIntended, afterStart = good.intended, good.start()+l.reach(good)
	case p.tenure != nil && p.tenure.Left:
		// What was sent just before the balancer left the node arrived there a little later.
		end := max(p.tenure.Until+l.connect, last.start()+l.reach(last))
		afterIntended, afterStart, o.left = end, end, p.tenure.Until
	default:
		o.open = true
		afterIntended, afterStart = l.fleet.until(afterIntended), l.fleet.until(afterStart)
	}
	o.before, o.after = beforeStart, afterStart
	o.upper = max(afterIntended-beforeIntended, afterStart-beforeStart)
	// The clock of a worker was compared again between the two ends, so each may be off, and to either side.
	o.lower, o.upper = max(0, o.lower-2*l.fleet.clock), o.upper+2*l.fleet.clock
}

// opening is the last instant before the outage that is known to be good, by intended and by actual start; without one
// it is when the balancer began to use the path, or the lane's beginning.
func (p *pathState) opening(l *lane) (intended, start time.Duration) {
	if p.good != nil {
		return p.good.intended, p.good.start()
	}
	from := l.begin
	if p.tenure != nil {
		from = max(from, p.tenure.From)
	}
	return min(from, p.first.intended), min(from, p.first.start())
}

// backend is the backend that answered most of the failed attempts; when none was answered, the one that answered the
// last good attempt before.
func (o *outage) backend() uint32 {
	best := o.lastBackend
	for _, b := range slices.Sorted(maps.Keys(o.backends)) {
		if o.backends[b] > o.backends[best] {
			best = b
		}
	}
	return best
}
