package probes

import (
	"math/rand/v2"
	"time"

	"github.com/hitless/hitless/record"
)

// lane is a lane that runs.
type lane struct {
	Lane
	cursor
	protocol protocol
	late     time.Duration // an attempt later than this is not started
	source   source
	request  []byte // the request up to the attempt's number
	inFlight int
	// Flights by what they wait for. Each list has one deadline for all, so it is in the order of the deadlines. Those that
	// are overdue have waited for an answer until the stall threshold of their lane.
	dialing, waiting, overdue flightList
	stats                     *LaneStats
	deaf                      *deafness // a known fault, for a while
	fresh                     *lane     // of the new connections that are tried when one of this lane fails; nil for none
	beside                    *lane     // whose fresh lane this is; nil for any other
	gone                      bool      // the engine has let go of it
}

// holds reports whether the lane has something beyond its attempts that it keeps up to its end.
func (n *lane) holds(now time.Duration) bool { return n.Protocol == ProtocolTCPLong && now < n.end }

// flight is an attempt under way. Flights are used again, so that an attempt allocates nothing.
type flight struct {
	record.Attempt
	lane       *lane // nil when not in use
	token      int32 // its place in Engine.flights
	generation int32 // counts its uses, so that a late event of an earlier use is known as such
	fd         int
	deadline   time.Duration
	partial    []byte // of an answer that comes in pieces
	list       *flightList
	prev, next *flight
}

// flightList is a list of flights in the order of their deadlines.
type flightList struct{ first, last *flight }

// add appends f, whose deadline must not be before those of the list.
func (l *flightList) add(f *flight, deadline time.Duration) {
	f.deadline, f.list, f.prev, f.next = deadline, l, l.last, nil
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

// deadline is the earliest of the list, never for none.
func (l *flightList) deadline() time.Duration {
	if l.first == nil {
		return never
	}
	return l.first.deadline
}

// leave takes the flight out of the list that it is in, if any.
func (f *flight) leave() {
	if f.list == nil {
		return
	}
	if f.prev == nil {
		f.list.first = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		f.list.last = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.list, f.prev, f.next = nil, nil, nil
}

// take returns a flight for an attempt of n.
func (e *Engine) take(n *lane) *flight {
	if len(e.idle) == 0 {
		f := &flight{token: int32(len(e.flights))}
		e.flights, e.idle = append(e.flights, f), append(e.idle, f)
	}
	f := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	f.lane, f.fd, f.generation = n, -1, f.generation+1
	n.inFlight++
	n.stats.peak(n.inFlight)
	return f
}

// release makes the flight free again. Small buffers of partial answers stay with it.
func (e *Engine) release(f *flight) {
	f.leave()
	f.lane.inFlight--
	f.lane, f.partial = nil, f.partial[:0]
	e.idle = append(e.idle, f)
}

// walkOf returns the walk that all lanes with these sources share. One over the ports that other processes have as well begins
// anywhere: two processes with one seed would go the same way through them.
func (e *Engine) walkOf(l Lane) *walk {
	from := l.sources()
	w := e.walks[from]
	if w == nil {
		seed := e.config.Seed
		if from.shared() {
			seed = rand.Int64()
		}
		w = newWalk(from.prefix, seed)
		e.walks[from] = w
	}
	return w
}
