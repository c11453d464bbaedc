package probes

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/hitless/hitless/record"
)

// lane is a lane that runs.
type lane struct {
	Lane
	cursor
	protocol    protocol
	maxLateness time.Duration // an attempt later than this is not started
	source      source
	request     []byte // the request up to the attempt's number
	inFlight    int
	// Flights by what they wait for. Each list has one deadline for all, so it is in the order of the deadlines. Those that
	// are overdue have waited for an answer until the stall threshold of their lane.
	dialing, waiting, overdue flightList
	stats                     *LaneStats
	replyDrop                 *replyDrop // a known fault, for a while
	fresh                     *lane      // of the new connections that are tried when one of this lane fails; nil for none
	parent                    *lane      // whose fresh lane this is; nil for any other
	removed                   bool       // the engine has let go of it
}

// holds reports whether the lane has something beyond its attempts that it keeps up to its end.
func (n *lane) holdsConnections(now time.Duration) bool {
	return n.Protocol == ProtocolTCPLong && now < n.end
}

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

// take returns a flight for an attempt of n.
func (e *Engine) newFlight(n *lane) *flight {
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
	f.unlink()
	f.lane.inFlight--
	f.lane, f.partial = nil, f.partial[:0]
	e.idle = append(e.idle, f)
}

// walkOf returns the walk that all lanes with these sources share. One over the ports that other processes have as well begins
// anywhere: two processes with one seed would go the same way through them.
func (e *Engine) sharedWalk(l Lane) *walk {
	from := l.sourceRange()
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

// never is later than every instant of a run.
const never = time.Duration(math.MaxInt64)

// schedule says when the attempts of a lane are intended. It holds no state, so nothing that happens can shift it.
type schedule struct {
	start time.Duration // offset of attempt 0 in the run
	rate  float64       // attempts per second
}

// at returns when attempt k is intended: start + k/rate, to the nanosecond. It is computed from k each time rather than
// by adding gaps, so that the rounding of a gap (333,333,333.3 ns) never adds up. The product k x 1e9 and the quotient
// are rounded to 53 bits, which is below a nanosecond for the first hundred days of a lane.
func (s schedule) at(k uint64) time.Duration {
	return s.start + time.Duration(math.Round(float64(k)*1e9/s.rate))
}

// cursor walks a schedule once, in order, up to an end that may be moved while it walks.
type cursor struct {
	schedule
	next uint64        // number of the next attempt
	end  time.Duration // attempts intended at or after it do not happen
}

// due returns when the next attempt is intended, or never when the schedule is over.
func (c *cursor) due() time.Duration {
	if at := c.at(c.next); at < c.end {
		return at
	}
	return never
}

// over reports whether no attempt is left.
func (c *cursor) over() bool { return c.due() == never }
