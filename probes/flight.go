package probes

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/hitless/hitless/record"
)

// lane is a running lane.
type lane struct {
	Lane
	cursor
	protocol    protocol
	maxLateness time.Duration // attempts with a larger lateness are not started
	source      source
	request     []byte // the request, up to the attempt's number
	inFlight    int
	// Flights by state. Each list has one time limit for all, so it is sorted by deadline. Overdue flights have waited
	// for an answer until the lane's stall threshold.
	dialing, waiting, overdue flightList
	replyDrop                 *replyDrop // nil without an injected fault
	fresh                     *lane      // the lane of fresh connections; nil for none
	parent                    *lane      // of a fresh lane; nil for other lanes
	removed                   bool       // from Engine.lanes
}

// holdsConnections reports whether the lane keeps connections open until its end.
func (n *lane) holdsConnections(now time.Duration) bool {
	return n.Protocol == ProtocolTCPLong && now < n.end
}

// flight is an attempt in flight. Flights are reused, so that an attempt allocates nothing.
type flight struct {
	record.Attempt
	lane       *lane // nil for an unused flight
	token      int32 // index in Engine.flights
	generation int32 // number of uses; detects events of an earlier use
	fd         int
	deadline   time.Duration
	partial    []byte // the first part of an incomplete answer
	list       *flightList
	prev, next *flight
}

// flightList is a list of flights, sorted by deadline.
type flightList struct{ first, last *flight }

// add appends f, whose deadline must not be before the deadlines in the list.
func (l *flightList) add(f *flight, deadline time.Duration) {
	f.deadline, f.list, f.prev, f.next = deadline, l, l.last, nil
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

// deadline returns the earliest deadline of the list, or never.
func (l *flightList) deadline() time.Duration {
	if l.first == nil {
		return never
	}
	return l.first.deadline
}

// unlink removes the flight from its list, if it is in one.
func (f *flight) unlink() {
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

// newFlight returns an unused flight for an attempt of n.
func (e *Engine) newFlight(n *lane) *flight {
	if len(e.idle) == 0 {
		f := &flight{token: int32(len(e.flights))}
		e.flights, e.idle = append(e.flights, f), append(e.idle, f)
	}
	f := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	f.lane, f.fd, f.generation = n, -1, f.generation+1
	n.inFlight++
	return f
}

// release makes the flight available again. Small buffers of partial answers are reused.
func (e *Engine) release(f *flight) {
	f.unlink()
	f.lane.inFlight--
	f.lane, f.partial = nil, f.partial[:0]
	e.idle = append(e.idle, f)
}

// sharedWalk returns the walk that all lanes with this source range share. A walk over ports that other processes use
// too begins at a random position, so that two processes with one seed do not collide, or where an earlier engine ended.
func (e *Engine) sharedWalk(l Lane) *walk {
	from := l.sourceRange()
	w := e.walks[from]
	if w == nil {
		switch shared := e.config.Shared; {
		case !from.shared():
			w = newWalk(from.prefix, e.config.Seed)
		case shared == nil:
			w = newWalk(from.prefix, rand.Int64())
		default:
			w = newWalk(from.prefix, shared.Seed)
			w.skip(shared.Drawn)
		}
		e.walks[from] = w
	}
	return w
}

// never is later than every time of a run.
const never = time.Duration(math.MaxInt64)

// schedule maps attempt numbers to times. It is stateless, so no event can shift it.
type schedule struct {
	start time.Duration // offset of attempt 0 in the run
	rate  float64       // attempts per second
}

// at returns the time of attempt k: start + k/rate, rounded to nanoseconds. It is computed from k, so that rounding
// errors of the interval do not add up. The product k x 1e9 and the quotient are rounded to 53 bits, which is below a
// nanosecond for the first hundred days of a lane.
func (s schedule) at(k uint64) time.Duration {
	return s.start + time.Duration(math.Round(float64(k)*1e9/s.rate))
}

// cursor iterates over a schedule up to an end that can change meanwhile.
type cursor struct {
	schedule
	next uint64        // number of the next attempt
	end  time.Duration // attempts scheduled at or after it are not made
}

// due returns the time of the next attempt, or never when the schedule has ended.
func (c *cursor) due() time.Duration {
	if at := c.at(c.next); at < c.end {
		return at
	}
	return never
}

// over reports whether the schedule has ended.
func (c *cursor) over() bool { return c.due() == never }
