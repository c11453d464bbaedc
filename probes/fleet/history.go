package fleet

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
)

// history is what a collector has of one incarnation of a worker.
type history struct {
	Member
	incarnation string
	firstHeard  time.Duration // when it was heard for the first time
	lastRequest time.Duration // when it was asked last

	lane        uint16 // its number in the record; 0 until it was to run
	declared    time.Duration
	clock       offset
	statedBound time.Duration // bound of the clock, as the record has it; 0 for none
	began       bool
	begin       time.Duration // of its lane, by its own clock

	next          uint64              // the first of its records that has not come
	nextSeq       uint64              // the first of the lane's numbers that has not come
	receivedAbove map[uint64]struct{} // numbers above that have

	state            string
	reached          bool
	done             bool          // it has ended, and everything of it has come
	endReason        string        // it ended before it was to
	replacedAt       time.Duration // when another process stood in its place; 0 while none does
	fetchedElsewhere bool          // somebody else has acknowledged what we did not have
	gone             bool          // nobody of its name will ever answer again
	lastErr          error         // with which the last question failed
	silentSince      time.Duration // since when it has not answered; 0 while it does
}

// over reports whether nothing more is to be expected of it.
func (h *history) finished() bool { return h.done || h.fetchedElsewhere || h.replacedAt > 0 || h.gone }

// request is the next question to it.
func (h *history) request(number uint64, do string) Request {
	return Request{Incarnation: h.incarnation, Number: number, From: h.next, Command: do}
}

// see takes note of what an answer says of the worker and its clock.
func (h *history) update(a answer, asked, answered time.Duration) {
	h.clock.update(asked, answered, a.Now)
	h.state, h.lastErr, h.silentSince, h.gone = a.State, nil, 0, false
	h.reached = h.reached || a.Reached
	if a.State != stateWaiting && a.Begin > 0 {
		h.began, h.begin = true, a.Begin
	}
	if a.EndReason != "" {
		h.endReason = a.EndReason
	}
}

// take returns the records of an answer that are new, by the run's clock, and how far that may be off.
func (h *history) accept(a answer) (fresh []record.Attempt, bound time.Duration) {
	if a.First != h.next {
		h.fetchedElsewhere = true
		return nil, 0
	}
	shift := h.clock.best()
	for _, r := range a.records {
		bound = max(bound, h.clock.bound(a.Now-r.Intended))
		r.Lane, r.Intended, r.Start = h.lane, r.Intended+shift, r.Start+shift
		fresh = append(fresh, r)
		h.next++
		h.markReceived(r.Seq)
	}
	h.done = h.done || a.State == stateEnded && h.next == a.Total
	return fresh, bound
}

// mark notes that one of the lane's numbers has come.
func (h *history) markReceived(seq uint64) {
	if seq < h.nextSeq {
		return
	}
	if h.receivedAbove == nil {
		h.receivedAbove = map[uint64]struct{}{}
	}
	h.receivedAbove[seq] = struct{}{}
	for {
		if _, come := h.receivedAbove[h.nextSeq]; !come {
			return
		}
		delete(h.receivedAbove, h.nextSeq)
		h.nextSeq++
	}
}

// gap states what is missing of it, if anything may be: from the first attempt that has not come, by its schedule, until the
// process was certainly gone, or the end.
func (h *history) missingRecord(every, end time.Duration) (record.Event, bool) {
	if h.lane == 0 || h.done && h.endReason == "" {
		return record.Event{}, false
	}
	from := h.declared
	if h.began {
		from = h.begin + time.Duration(h.nextSeq)*every + h.clock.best()
		from -= h.clock.bound((from - h.clock.at).Abs()) // its last exchange may be long after that attempt, or before
	}
	to := end
	if h.replacedAt > 0 {
		to = h.replacedAt
	}
	from = min(max(from, 0), to)
	return record.Event{At: end, Node: h.Node, Object: h.Name, Text: h.missingReason(),
		Body: record.MissingRecord{Lane: h.lane, From: from, To: to, Seq: h.nextSeq}}, true
}

// fate says what became of it.
func (h *history) missingReason() string {
	switch {
	case h.done:
		return "it ended by itself (" + h.endReason + "), with everything recorded until then"
	case h.fetchedElsewhere:
		return "another collector has fetched attempts that this one has not"
	case h.replacedAt > 0:
		return "its process ended, and another began in its place"
	case h.lastErr != nil:
		return fmt.Sprintf("it has not answered since %.1f s: %v", h.silentSince.Seconds(), h.lastErr)
	case h.state == stateEnded:
		return "not all of its attempts were fetched in time"
	default:
		return "it did not come to its end in time"
	}
}

// clockEvent states how far the clock is off, if that is more than what was stated.
func (h *history) clockEvent(at, bound time.Duration) (record.Event, bool) {
	if bound <= h.statedBound {
		return record.Event{}, false
	}
	h.statedBound = bound + bound/8 // so that a bound that grows slowly is not told each time
	return record.Event{At: at, Node: h.Node, Object: h.Name,
		Text: fmt.Sprintf("the clock of %s is known to within %.3f ms", h.Name, float64(h.statedBound)/1e6),
		Body: record.ClockBound{Lane: h.lane, Bound: h.statedBound}}, true
}

// drift is how fast two clocks may part at most, as a share of the time: a kernel that follows NTP slews CLOCK_MONOTONIC by
// at most 500 ppm (adjtimex(2)), quartz is off by less than 100.
const drift = 600e-6

// offset is what is known of the difference between the run's clock and a worker's: run = worker + offset.
//
// A worker reads its clock after it was asked and before its answer is there, so each exchange gives an interval that holds the
// difference, as wide as the exchange took. Intervals are joined as the clocks may have parted meanwhile.
type offset struct {
	low, high time.Duration // holds the difference at the instant at
	at        time.Duration // of the run's clock
	jump      time.Duration // by how much the clocks parted beyond all reason since the exchange before, or 0
	known     bool
}

// compare takes an exchange: the worker's clock stood at now between the instants asked and answered of the run's.
func (o *offset) update(asked, answered, now time.Duration) {
	low, high := asked-now, answered-now
	if !o.known {
		*o = offset{low: low, high: high, at: asked, known: true}
		return
	}
	since := maxDrift(answered - o.at)
	joined := offset{low: max(low, o.low-since), high: min(high, o.high+since), at: asked, known: true}
	if joined.low > joined.high { // one of the machines stood still: its clock, too
		joined = offset{low: low, high: high, at: asked, known: true,
			jump: max(high, o.high+since) - min(low, o.low-since)}
	}
	*o = joined
}

// parted is by how much two clocks may part in a time.
func maxDrift(d time.Duration) time.Duration { return time.Duration(float64(d)*drift) + 1 }

// best is the difference that is wrong by the least at most.
func (o *offset) best() time.Duration { return o.low + (o.high-o.low)/2 }

// bound is how far best may be off for an instant that lies so long before the last exchange.
func (o *offset) bound(age time.Duration) time.Duration {
	return (o.high-o.low)/2 + 1 + maxDrift(max(0, age)) + o.jump
}
