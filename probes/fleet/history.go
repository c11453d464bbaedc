package fleet

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
)

// history is a collector's state of one incarnation of a worker. Times are those of the run's clock.
type history struct {
	Member
	incarnation string
	firstHeard  time.Duration // time of the first answer
	lastRequest time.Duration // time of the last request

	lane        uint16 // lane id in the record; 0 until it is started
	declared    time.Duration
	clock       offset
	statedBound time.Duration // bound of the clock in the record; 0 for none
	began       bool
	begin       time.Duration // of its lane, by the worker's clock

	next          uint64              // number of the first record that was not received
	nextSeq       uint64              // first sequence number of the lane that was not received
	receivedAbove map[uint64]struct{} // received sequence numbers above nextSeq

	state            string
	reached          bool          // its target has answered
	done             bool          // it has ended, and all its records were received
	endReason        string        // why it ended early; empty if it did not
	replacedAt       time.Duration // when another incarnation answered; 0 for none
	fetchedElsewhere bool          // another collector has acknowledged records that this one has not received
	gone             bool          // see ErrGone
	lastErr          error         // of the last request
	silentSince      time.Duration // time of the first request without an answer; 0 if the last one was answered
}

// finished reports whether the collector expects no more records.
func (h *history) finished() bool { return h.done || h.fetchedElsewhere || h.replacedAt > 0 || h.gone }

// request returns the next request.
func (h *history) request(number uint64, do string) Request {
	return Request{Incarnation: h.incarnation, Number: number, From: h.next, Command: do}
}

// update stores the worker's state and clock from an answer.
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

// accept returns the new records of an answer with times of the run's clock, and the largest error of these times.
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

// markReceived stores that a sequence number of the lane was received.
func (h *history) markReceived(seq uint64) {
	if seq < h.nextSeq {
		return
	}
	if h.receivedAbove == nil {
		h.receivedAbove = map[uint64]struct{}{}
	}
	h.receivedAbove[seq] = struct{}{}
	for {
		if _, received := h.receivedAbove[h.nextSeq]; !received {
			return
		}
		delete(h.receivedAbove, h.nextSeq)
		h.nextSeq++
	}
}

// missingRecord returns the missing record, and false if none is possible. It lasts from the scheduled time of the first attempt that was
// not received until another incarnation answered, or until the end.
func (h *history) missingRecord(every, end time.Duration) (record.Event, bool) {
	if h.lane == 0 || h.done && h.endReason == "" {
		return record.Event{}, false
	}
	from := h.declared
	if h.began {
		from = h.begin + time.Duration(h.nextSeq)*every + h.clock.best()
		from -= h.clock.bound((from - h.clock.at).Abs()) // the last exchange may be long before or after that attempt
	}
	to := end
	if h.replacedAt > 0 {
		to = h.replacedAt
	}
	from = min(max(from, 0), to)
	return record.Event{At: end, Node: h.Node, Object: h.Name, Text: h.missingReason(),
		Body: record.MissingRecord{Lane: h.lane, From: from, To: to, Seq: h.nextSeq}}, true
}

// missingReason returns why records are missing.
func (h *history) missingReason() string {
	switch {
	case h.done:
		return "it ended early (" + h.endReason + "), with all its attempts recorded"
	case h.fetchedElsewhere:
		return "another collector has fetched attempts that this one has not"
	case h.replacedAt > 0:
		return "its process ended, and another process replaced it"
	case h.lastErr != nil:
		return fmt.Sprintf("it has not answered since %.1f s: %v", h.silentSince.Seconds(), h.lastErr)
	case h.state == stateEnded:
		return "not all of its attempts were fetched in time"
	default:
		return "it did not end in time"
	}
}

// clockEvent returns an event with the clock's bound if it is larger than the recorded one.
func (h *history) clockEvent(at, bound time.Duration) (record.Event, bool) {
	if bound <= h.statedBound {
		return record.Event{}, false
	}
	h.statedBound = bound + bound/8 // fewer events for a bound that grows slowly
	return record.Event{At: at, Node: h.Node, Object: h.Name,
		Text: fmt.Sprintf("the clock of %s is known to within %.3f ms", h.Name, float64(h.statedBound)/1e6),
		Body: record.ClockBound{Lane: h.lane, Bound: h.statedBound}}, true
}

// drift is the largest relative drift of two clocks: NTP slews CLOCK_MONOTONIC by at most 500 ppm (adjtimex(2)), and the error of a
// quartz is less than 100 ppm.
const drift = 600e-6

// offset bounds the difference between the run's clock and a worker's clock: run = worker + offset.
//
// A worker reads its clock between the request and the answer, so each exchange bounds the difference by its duration. The bounds of two
// exchanges are intersected after widening by the possible drift.
type offset struct {
	low, high time.Duration // bounds of the difference at time at
	at        time.Duration // of the run's clock
	jump      time.Duration // change of the difference beyond drift since the previous exchange; 0 for none
	known     bool
}

// update adds an exchange: the worker's clock was now at a time between asked and answered of the run's clock.
func (o *offset) update(asked, answered, now time.Duration) {
	low, high := asked-now, answered-now
	if !o.known {
		*o = offset{low: low, high: high, at: asked, known: true}
		return
	}
	since := maxDrift(answered - o.at)
	joined := offset{low: max(low, o.low-since), high: min(high, o.high+since), at: asked, known: true}
	if joined.low > joined.high { // the clock of a suspended machine has stopped
		joined = offset{low: low, high: high, at: asked, known: true,
			jump: max(high, o.high+since) - min(low, o.low-since)}
	}
	*o = joined
}

// maxDrift returns the largest drift of two clocks in a time.
func maxDrift(d time.Duration) time.Duration { return time.Duration(float64(d)*drift) + 1 }

// best returns the middle of the bounds, which has the smallest maximum error.
func (o *offset) best() time.Duration { return o.low + (o.high-o.low)/2 }

// bound returns the largest error of best for a time that is age before the last exchange.
func (o *offset) bound(age time.Duration) time.Duration {
	return (o.high-o.low)/2 + 1 + maxDrift(max(0, age)) + o.jump
}
