package probes

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// MaxDeaf is the longest that a lane can be made deaf at a time, see Engine.Deafen.
const MaxReplyDrop = 400 * time.Millisecond

// hearAgain is how long after its start a deaf attempt hears again, at the earliest: longer than any answer takes that
// is not lost, and shorter than the second after which the kernel sends a SYN again (TCP_TIMEOUT_INIT, RFC 6298).
const replyDropTime = 500 * time.Millisecond

// Deafen puts a known fault on a lane: attempts that start within [from, until) lose the answer to their first packet,
// as if it had been dropped on the way. It needs no privilege and nobody's help: the client's own kernel drops what
// arrives for their sockets (a socket filter, socket(7) SO_ATTACH_FILTER), so what is proved is all that lies on this
// side: schedule, sockets, TCP_INFO, deadlines, classes, clocks, the record, and everything that is computed from it.
//
// A SYN that is sent again after a second is answered, so a TCP attempt becomes delayed, as with any short drop; a
// datagram is lost. Give the order ahead of from, and no second one before the first is over by a second.
func (e *Engine) DropReplies(id uint16, from, until time.Duration) error {
	if until <= from || until-from > MaxReplyDrop {
		return fmt.Errorf("making lane %d deaf for %v: more than 0 and at most %v is possible", id, until-from, MaxReplyDrop)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.started, func(l Lane) bool { return l.ID == id })
	if i < 0 {
		return fmt.Errorf("making lane %d deaf: no such lane was started", id)
	}
	if p := e.started[i].Protocol; p != ProtocolTCPNew && p != ProtocolUDPFresh {
		return fmt.Errorf("making lane %d deaf: its protocol %s keeps its socket, which other attempts need", id, p)
	}
	return e.command(func(time.Duration) {
		for _, n := range e.lanes {
			if n.ID == id {
				n.replyDrop = &replyDrop{from: from, until: until}
			}
		}
	})
}

// deafness is a known fault of a lane.
type replyDrop struct {
	from, until time.Duration
	flights     []filteredFlight
}

// deafFlight is a flight at the time at which it was made deaf; it may since have ended.
type filteredFlight struct {
	flight     *flight
	generation int32
}

// deafen makes the attempt deaf if a fault says so; call it before its first packet. It also lets earlier ones hear
// again, which needs no timer since a lane that has such a fault starts many attempts a second.
func (s *sockets) dropReplies(f *flight) unix.Errno {
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
	errno := sysSetsockopt(f.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, unsafe.Pointer(s.dropAll), unsafe.Sizeof(*s.dropAll))
	if errno == 0 {
		d.flights = append(d.flights, filteredFlight{f, f.generation})
	}
	return errno
}

// hear takes the filters off.
func (s *sockets) acceptReplies(d *replyDrop) {
	for _, b := range d.flights {
		if b.flight.lane != nil && b.flight.generation == b.generation {
			_ = sysSetsockoptInt(b.flight.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, &s.off) // it has one
		}
	}
}

// dropAll is the shortest filter: it keeps 0 bytes of each packet.
func newDropFilter() *unix.SockFprog {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}

// Injected declares a fault that Deafen puts on a lane, see record.Fault: its begin and its end.
func ReplyDropEvents(lane, id string, from, until time.Duration) [2]record.Event {
	event := func(at time.Duration, state, text string) record.Event {
		return record.Event{At: at, Object: id, Text: text,
			Body: record.Fault{Fault: "drop", State: state, ID: id, Lane: lane, Control: true}}
	}
	return [2]record.Event{
		event(from, "begin", fmt.Sprintf("%s: what arrives for attempts of lane %s is dropped for %v", id, lane, until-from)),
		event(until, "end", id+" ended"),
	}
}
