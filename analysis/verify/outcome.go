package verify

import (
	"time"

	"github.com/hitless/hitless/record"
)

// outcome is how a connection went. The captured packets do not show which pod answered, or with which content. The answer of a wrong
// backend has the outcome answered too.
type outcome string

// The outcomes. Their words are those of the classes that they correspond to.
const (
	answered       outcome = "answered"
	delayed        outcome = "delayed"
	refused        outcome = "refused"
	rejected       outcome = "rejected"
	unreachable    outcome = "unreachable"
	connectTimeout outcome = "connect-timeout"
	reset          outcome = "reset"
	closed         outcome = "closed"
	replyTimeout   outcome = "reply-timeout"
	undecided      outcome = "undecided" // the capture ended before the connection
)

// outcomeOf is what the capture must show of an attempt of a class; empty for classes without packets that tell it.
func outcomeOf(c record.Class) outcome {
	switch c {
	case record.OK, record.Misrouted, record.WrongAnswer:
		return answered
	case record.Delayed, record.Stalled:
		return delayed
	case record.Probe:
		return ""
	}
	return outcome(c.String())
}

// synLost is the time to connect from which a SYN that was sent again counts as lost: docs/measuring.md.
const synLost = 500 * time.Millisecond

// limits are the deadlines of a lane.
type limits struct {
	dial, reply time.Duration
	slow        time.Duration // from which an answer is delayed; 0 for never
	noRequest   bool          // the attempts end with the handshake
}

// outcome tells how the connection went from its packets and the deadlines alone.
func (c *connection) outcome(l limits) outcome {
	if !c.within(c.accepted, l.dial) {
		return c.unaccepted(l)
	}
	late := len(c.syns) > 1 && c.accepted-c.begun() >= synLost
	switch {
	case !l.noRequest && c.gaveUp(l.reply):
		return replyTimeout
	case late && (c.answer > 0 || l.noRequest):
		return delayed
	case l.noRequest:
		return answered
	case c.answer > 0 && l.slow > 0 && c.ended != 0 && c.ended-c.begun() > l.slow:
		return delayed
	case c.answer > 0:
		return answered
	case c.byServer(c.reset):
		return reset
	case c.byServer(c.finished):
		return closed
	case c.ended != 0:
		return replyTimeout
	}
	return undecided
}

// gaveUp reports whether the client ended the connection at the reply deadline or later, and the server had not ended it before.
func (c *connection) gaveUp(reply time.Duration) bool {
	return c.ended != 0 && c.ended-c.accepted >= reply && !c.byServer(c.reset) && !c.byServer(c.finished)
}

// byServer reports whether the server's RST or FIN at an instant, which is 0 for none, ended the connection before the client did.
func (c *connection) byServer(at time.Duration) bool {
	return at != 0 && (c.ended == 0 || at <= c.ended)
}

// cutOff reports whether the server ended a connection that it had sent data on, in the way that an outcome says. Packets do not tell
// whether the answer was complete.
func (c *connection) cutOff(o outcome) bool {
	return c.answer > 0 && (o == closed && c.byServer(c.finished) || o == reset && c.byServer(c.reset))
}

// unaccepted is the outcome of a connection without a SYN-ACK in time.
func (c *connection) unaccepted(l limits) outcome {
	byICMP, byRST := c.within(c.icmpAt, l.dial), c.within(c.refused, l.dial)
	switch {
	case byICMP && (!byRST || c.icmpAt <= c.refused):
		if c.icmp.ofRule() {
			return rejected
		}
		return unreachable
	case byRST:
		return refused
	}
	return connectTimeout
}

// ofRule reports whether only a rule sends the error: a port that is unreachable, or a prohibition (RFC 792, 1812, 4443).
func (e icmpError) ofRule() bool {
	if e.six {
		return e.typ == 1 && (e.code == 1 || e.code == 4 || e.code == 5)
	}
	return e.typ == 3 && (e.code == 3 || e.code == 9 || e.code == 10 || e.code == 13)
}

// ties reports whether the connection has an outcome if the deadlines are up to the tolerance earlier or later.
func (c *connection) ties(o outcome, l limits) bool {
	for _, d := range []time.Duration{-tolerance, tolerance} {
		near := limits{dial: l.dial + d, reply: l.reply + d, noRequest: l.noRequest}
		if l.slow > 0 {
			near.slow = l.slow + d
		}
		if c.outcome(near) == o {
			return true
		}
	}
	return false
}
