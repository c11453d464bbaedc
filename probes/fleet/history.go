package fleet

import (
	"fmt"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// history is what a collector has of one incarnation of a worker.
type history struct {
	Member
	incarnation string
	heard       time.Duration // when it was heard for the first time
	asked       time.Duration // when it was asked last

	lane   uint16 // its number in the record; 0 until it was to run
	told   time.Duration
	clock  offset
	stated time.Duration // bound of the clock, as the record has it; 0 for none
	began  bool
	begin  time.Duration // of its lane, by its own clock

	next  uint64              // the first of its records that has not come
	low   uint64              // the first of the lane's numbers that has not come
	above map[uint64]struct{} // numbers above that have

	state    string
	reached  bool
	done     bool          // it has ended, and everything of it has come
	why      string        // it ended before it was to
	replaced time.Duration // when another process stood in its place; 0 while none does
	robbed   bool          // somebody else has acknowledged what we did not have
	gone     bool          // nobody of its name will ever answer again
	trouble  error         // with which the last question failed
	silent   time.Duration // since when it has not answered; 0 while it does
}

// over reports whether nothing more is to be expected of it.
func (h *history) over() bool { return h.done || h.robbed || h.replaced > 0 || h.gone }

// request is the next question to it.
func (h *history) request(number uint64, do string) Request {
	return Request{Incarnation: h.incarnation, Number: number, From: h.next, Do: do}
}

// see takes note of what an answer says of the worker and its clock.
func (h *history) see(a answer, asked, answered time.Duration) {
	h.clock.compare(asked, answered, a.Now)
	h.state, h.trouble, h.silent, h.gone = a.State, nil, 0, false
	h.reached = h.reached || a.Reached
	if a.State != stateWaiting && a.Begin > 0 {
		h.began, h.begin = true, a.Begin
	}
	if a.Why != "" {
		h.why = a.Why
	}
}

// take returns the records of an answer that are new, by the run's clock, and how far that may be off.
func (h *history) take(a answer) (fresh []record.Attempt, bound time.Duration) {
	if a.First != h.next {
		h.robbed = true
		return nil, 0
	}
	shift := h.clock.best()
	for _, r := range a.records {
		bound = max(bound, h.clock.bound(a.Now-r.Intended))
		r.Lane, r.Intended, r.Start = h.lane, r.Intended+shift, r.Start+shift
		fresh = append(fresh, r)
		h.next++
		h.mark(r.Seq)
	}
	h.done = h.done || a.State == stateEnded && h.next == a.Total
	return fresh, bound
}

// mark notes that one of the lane's numbers has come.
func (h *history) mark(seq uint64) {
	if seq < h.low {
		return
	}
	if h.above == nil {
		h.above = map[uint64]struct{}{}
	}
	h.above[seq] = struct{}{}
	for {
		if _, come := h.above[h.low]; !come {
			return
		}
		delete(h.above, h.low)
		h.low++
	}
}

// gap states what is missing of it, if anything may be: from the first attempt that has not come, by its schedule, until the
// process was certainly gone, or the end.
func (h *history) gap(every, end time.Duration) (record.Event, bool) {
	if h.lane == 0 || h.done && h.why == "" {
		return record.Event{}, false
	}
	from := h.told
	if h.began {
		from = h.begin + time.Duration(h.low)*every + h.clock.best()
		from -= h.clock.bound((from - h.clock.at).Abs()) // its last exchange may be long after that attempt, or before
	}
	to := end
	if h.replaced > 0 {
		to = h.replaced
	}
	from = min(max(from, 0), to)
	return record.Event{At: end, LegacyKind: record.KindMissingRecord, Node: h.Node, Object: h.Name, Text: h.fate(),
		Attrs: map[string]string{"lane": strconv.Itoa(int(h.lane)), "fromNs": strconv.FormatInt(int64(from), 10),
			"toNs": strconv.FormatInt(int64(to), 10), "seq": strconv.FormatUint(h.low, 10)}}, true
}

// fate says what became of it.
func (h *history) fate() string {
	switch {
	case h.done:
		return "it ended by itself (" + h.why + "), with everything recorded until then"
	case h.robbed:
		return "another collector has fetched attempts that this one has not"
	case h.replaced > 0:
		return "its process ended, and another began in its place"
	case h.trouble != nil:
		return fmt.Sprintf("it has not answered since %.1f s: %v", h.silent.Seconds(), h.trouble)
	case h.state == stateEnded:
		return "not all of its attempts were fetched in time"
	default:
		return "it did not come to its end in time"
	}
}

// clockEvent states how far the clock is off, if that is more than what was stated.
func (h *history) clockEvent(at, bound time.Duration) (record.Event, bool) {
	if bound <= h.stated {
		return record.Event{}, false
	}
	h.stated = bound + bound/8 // so that a bound that grows slowly is not told each time
	return record.Event{At: at, LegacyKind: record.KindClockBound, Node: h.Node, Object: h.Name,
		Text:  fmt.Sprintf("the clock of %s is known to within %.3f ms", h.Name, float64(h.stated)/1e6),
		Attrs: map[string]string{"lane": strconv.Itoa(int(h.lane)), "boundNs": strconv.FormatInt(int64(h.stated), 10)}}, true
}
