package probes

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/hitless/hitless/record"
)

// MaxReplyDrop is the longest time of one injected reply drop, see Engine.DropReplies.
const MaxReplyDrop = 400 * time.Millisecond

// replyDropTime is how long replies to an attempt are dropped, at least: longer than an answer takes, and shorter than
// the first SYN retransmission timeout of 1 s (TCP_TIMEOUT_INIT, RFC 6298).
const replyDropTime = 500 * time.Millisecond

// DropReplies injects a fault into a lane: replies to attempts that start within [from, until) are dropped. The
// client's kernel drops them by a socket filter (socket(7) SO_ATTACH_FILTER), which needs no privilege. It proves
// everything on this side: schedule, sockets, TCP_INFO, deadlines, classes, clocks, the record and its analysis. Elsewhere than on Linux
// this program itself holds the answers back, which proves the same but sockets and TCP_INFO.
//
// The retransmitted SYN is answered after a second, so a TCP attempt becomes delayed, as with any short drop; a UDP
// attempt gets class reply-timeout. Call it before from, and at least one second after the previous fault has ended.
func (e *Engine) DropReplies(id uint16, from, until time.Duration) error {
	if until <= from || until-from > MaxReplyDrop {
		return fmt.Errorf("dropping replies to lane %d for %v: give more than 0 and at most %v", id, until-from, MaxReplyDrop)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.started, func(l Lane) bool { return l.ID == id })
	if i < 0 {
		return fmt.Errorf("dropping replies to lane %d: no such lane was started", id)
	}
	if l := e.started[i]; !l.opensSockets() {
		return fmt.Errorf("dropping replies to lane %d: its protocol %s shares sockets between attempts", id, l.Protocol)
	}
	return e.command(func(time.Duration) {
		for _, n := range e.lanes {
			if n.ID == id {
				n.replyDrop = &replyDrop{from: from, until: until}
			}
		}
	})
}

// replyDrop is an injected fault of a lane.
type replyDrop struct {
	from, until time.Duration
	flights     []filteredFlight
}

// filteredFlight is a flight at the time at which its socket got a filter; it may have ended since.
type filteredFlight struct {
	flight     *flight
	generation int32
}

// dropReplies attaches the filter to the attempt's socket if a fault is active; call it before the first packet. It
// also removes filters of earlier attempts, which needs no timer because a lane with such a fault starts many attempts
// a second.
func (s *sockets) dropReplies(f *flight) syscall.Errno {
	d := f.lane.replyDrop
	if d == nil || f.Start < d.from {
		return 0
	}
	if f.Start >= d.until {
		if f.Start >= d.until+replyDropTime {
			s.acceptReplies(d)
			f.lane.replyDrop = nil
		}
		return 0
	}
	errno := s.dropPackets(f)
	if errno == 0 {
		d.flights = append(d.flights, filteredFlight{f, f.generation})
	}
	return errno
}

// acceptReplies removes the filters.
func (s *sockets) acceptReplies(d *replyDrop) {
	for _, b := range d.flights {
		if b.flight.lane != nil && b.flight.generation == b.generation {
			s.acceptPackets(b.flight.fd)
		}
	}
}

// ReplyDropEvents returns the events of a fault that DropReplies injects: its begin and its end.
func ReplyDropEvents(lane, id string, from, until time.Duration) [2]record.Event {
	event := func(at time.Duration, state record.FaultState, text string) record.Event {
		return record.Event{At: at, Object: id, Text: text,
			Body: record.Fault{Fault: "drop", State: state, ID: id, Lane: lane, Control: true}}
	}
	return [2]record.Event{
		event(from, record.FaultBegin, fmt.Sprintf("%s: replies to attempts of lane %s are dropped for %v", id, lane, until-from)),
		event(until, record.FaultEnd, id+" ended"),
	}
}
