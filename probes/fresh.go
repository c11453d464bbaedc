package probes

import (
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// freshSuffix is appended to a lane's name for its lane of fresh connections.
const freshSuffix = "-fresh"

// maxFresh limits the fresh connections in flight of a lane: one for each connection that a scenario keeps open, and a
// few more. It bounds the attempts to a target that never answers.
const maxFresh = 16

// freshLane returns the lane of the fresh connections for Lane.Fresh. It has no schedule: an attempt is made when an
// established connection fails.
func (l Lane) freshLane() Lane {
	f := l.WithDefaults()
	f.ID, f.Name, f.Fresh = l.Fresh, l.Name+freshSuffix, 0
	f.Protocol, f.Connections, f.StallAfter, f.InFlight = ProtocolTCPNew, 0, 0, maxFresh
	f.Control, f.Role, f.Beside = true, record.RoleFresh, l.Name
	return f
}

// Events returns the events that declare a lane and its fresh lane.
func (l Lane) Events(at time.Duration) []record.Event {
	all := []record.Event{l.Event(at)}
	if l.Fresh != 0 {
		all = append(all, l.freshLane().Event(at))
	}
	return all
}

// beginFresh adds the lane of fresh connections of n.
func (e *Engine) beginFresh(n *lane, at, now time.Duration) {
	l := n.freshLane().WithDefaults()
	// The schedule ends before its first attempt.
	n.fresh = &lane{Lane: l, cursor: cursor{schedule: schedule{start: at, rate: l.Rate}, end: at}, parent: n,
		protocol: e.protocols[l.Protocol], source: e.newSource(l, now), request: requestHead(l)}
	e.insert(n.fresh)
}

// tryFresh opens a new connection because the connection from the source like has failed or stalled. Its outcome
// separates a lost connection from a broken path. With an even spread it uses a source on the same node as like.
func (e *Engine) tryFresh(n *lane, like netip.AddrPort) {
	fresh := n.fresh
	if fresh == nil || fresh.inFlight >= fresh.InFlight {
		return
	}
	now := e.host.now()
	f := e.newFlight(fresh)
	f.Attempt = record.Attempt{Lane: fresh.ID, Seq: fresh.cursor.next, Intended: now, Start: now}
	fresh.cursor.next++
	if s, even := fresh.source.(spreadSource); even {
		s.sameNodeAs = like
		fresh.source = s
	}
	fresh.protocol.start(f)
}
