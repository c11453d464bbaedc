package probes

import (
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// freshSuffix makes the name of the lane of fresh connections from that of the lane which it is beside.
const freshSuffix = "-fresh"

// mostFresh is how many fresh connections of a lane are under way at most: one for each connection that a scenario keeps
// open, and a few more. A failure beyond has none, so that a target which answers nothing is not asked without bound.
const maxFresh = 16

// FreshLane is the lane of the fresh connections that Lane.Fresh asks for. It has no schedule: its attempts are intended
// when an established connection fails.
func (l Lane) FreshLane() Lane {
	f := l.WithDefaults()
	f.ID, f.Name, f.Fresh = l.Fresh, l.Name+freshSuffix, 0
	f.Protocol, f.Connections, f.StallAfter, f.InFlight = ProtocolTCPNew, 0, 0, maxFresh
	f.Control, f.Role, f.Beside = true, record.RoleFresh, l.Name
	return f
}

// Events declares a lane and what belongs to it, see record.Lane.
func (l Lane) Events(at time.Duration) []record.Event {
	all := []record.Event{l.Event(at)}
	if l.Fresh != 0 {
		all = append(all, l.FreshLane().Event(at))
	}
	return all
}

// beginFresh makes the lane of the fresh connections beside n.
func (e *Engine) beginFresh(n *lane, at time.Duration, stats *LaneStats, now time.Duration) {
	l := n.FreshLane().WithDefaults()
	// The schedule is over before its first attempt.
	n.fresh = &lane{Lane: l, cursor: cursor{schedule: schedule{start: at, rate: l.Rate}, end: at}, stats: stats, parent: n,
		protocol: e.protocols[l.Protocol], source: e.newSource(l, now), request: requestHead(l)}
	e.insert(n.fresh)
}

// look opens a new connection because the one from the given source has failed, or has been silent for too long: what
// becomes of it tells whether the connection was lost or the way. It goes the way of the other where that can be chosen.
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
