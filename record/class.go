package record

import "fmt"

// Class is the outcome of one attempt. The words are fixed: they mean the same in every file, table and page.
type Class uint8

const (
	// OK is a complete, correct answer without a lost SYN.
	OK Class = iota + 1
	// Delayed is a correct answer to a SYN that was lost and sent again (TCP_INFO, and connected no sooner than 500 ms), or one
	// that came later than the lane's threshold.
	Delayed
	// Refused is a RST from a host with no listener; the error queue is empty.
	Refused
	// Rejected is an ICMP port unreachable or prohibition from a firewall or proxy rule; the error queue names the offender. For UDP it
	// is also what a host without a listener says.
	Rejected
	// Unreachable is an ICMP network or host unreachable.
	Unreachable
	// ConnectTimeout is a SYN without an answer for the whole dial deadline.
	ConnectTimeout
	// Reset is a RST on an established connection, or the death of a kept HTTP connection for which an ordinary client
	// would have sent the request again in silence.
	Reset
	// Closed is a FIN before the answer was complete.
	Closed
	// ReplyTimeout is an established connection without an answer for the whole reply deadline, or a lost datagram.
	ReplyTimeout
	// Stalled is a long-lived connection whose answer came, but later than the lane's stall threshold.
	Stalled
	// Misrouted is an answer from a backend that the lane must not reach.
	Misrouted
	// Probe is a fault of the probe itself (no port, no descriptor, started too late); never charged to the subject.
	Probe
	// WrongAnswer is an answer with the wrong content that names no backend: another HTTP status, a broken body, something else.
	WrongAnswer
)

var classWords = [...]string{OK: "ok", Delayed: "delayed", Refused: "refused", Rejected: "rejected",
	Unreachable: "unreachable", ConnectTimeout: "connect-timeout", Reset: "reset", Closed: "closed",
	ReplyTimeout: "reply-timeout", Stalled: "stalled", Misrouted: "misrouted", Probe: "probe", WrongAnswer: "wrong-answer"}

// Classes lists every class in its fixed order.
func Classes() []Class {
	all := make([]Class, 0, len(classWords)-1)
	for c := OK; c <= WrongAnswer; c++ {
		all = append(all, c)
	}
	return all
}

// String returns the fixed word of the class.
func (c Class) String() string {
	if c < OK || c > WrongAnswer {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return classWords[c]
}

// Dropped reports whether the attempt counts as a dropped connection: everything but ok, delayed and probe.
func (c Class) Dropped() bool { return c != OK && c != Delayed && c != Probe }

// Excusable reports whether a disturbance can make such an outcome unavoidable. A wrong answer is always a fault of the subject.
func (c Class) Excusable() bool {
	return (c.Dropped() || c == Delayed) && c != Misrouted && c != WrongAnswer
}

// MarshalText writes the fixed word.
func (c Class) MarshalText() ([]byte, error) {
	if c < OK || c > WrongAnswer {
		return nil, fmt.Errorf("class %d has no word; known classes are 1 to %d", uint8(c), uint8(WrongAnswer))
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads a fixed word; any other word is an error.
func (c *Class) UnmarshalText(text []byte) error {
	for k := OK; k <= WrongAnswer; k++ {
		if classWords[k] == string(text) {
			*c = k
			return nil
		}
	}
	return fmt.Errorf("%q is not an outcome class; the classes are %v", text, Classes())
}
