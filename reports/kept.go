package reports

import (
	"net/netip"
	"slices"
	"time"
)

// The words for lanes whose attempts share flows that are not opened by each attempt; see protocolLong.
const (
	protocolReuse  = "http-reuse"
	protocolSticky = "udp-sticky"
	protocolFresh  = "udp-fresh" // the one of datagrams that shares none
)

// keptFlow is what is known of a connection that an http-reuse lane keeps: who chose its node, and when it was used last.
type keptFlow struct {
	used time.Duration
	way  choice
}

// kept finds the path of an attempt on a connection that an earlier attempt of the lane opened: flows keep their nodes.
// Attempt.TupleAge leads from each of its attempts to the one before. Else choose computes the path, and it is kept.
func (l *lane) kept(a *Attempt, choose func() choice) choice {
	if l.protocol != protocolReuse {
		return choose()
	}
	k, known := l.flows[a.Source]
	if !known || a.TupleAge == 0 || k.used != a.Start-a.TupleAge {
		k.way = choose()
	}
	if l.flows == nil {
		l.flows = map[netip.AddrPort]keptFlow{}
	}
	l.flows[a.Source] = keptFlow{used: a.Start, way: k.way}
	return k.way
}

// chooseKept computes the path of an attempt on the one flow of datagrams of a udp-sticky lane: it keeps its node until
// that leaves the balancer's table, and takes the one that the table then gives it. During a change, choose's rules hold.
func (l *lane) chooseKept(ts tables, a *Attempt) choice {
	before, last := ts.around(a, 0)
	after := l.followed(ts, a, last)
	was := after
	if before != last {
		was = l.followed(ts, a, before)
	}
	told := l.local && a.Node != "" && a.Class != Misrouted
	switch {
	case told && a.Node == after.node:
		return after
	case told && a.Node == was.node:
		return was
	case last > before && (before < 0 || a.Start >= ts[before+1].from):
		return after
	}
	return was
}

// followed is where the lane's flow goes when the table number now is in force. Tables that no attempt met, as the
// lane's schedule tells, are passed over.
func (l *lane) followed(ts tables, a *Attempt, now int) choice {
	at := choice{"", -1}
	for i := 0; i <= now; i++ {
		met := i == now || l.attemptWithin(ts[i].from, ts[i+1].from)
		if met && (at.node == "" || !slices.Contains(ts[i].nodes, at.node)) {
			at.node = ts[i].pick(a, l.address)
		}
		at.epoch = i
	}
	return at
}

// attemptWithin reports whether the lane's schedule has an attempt from one instant until before another.
func (l *lane) attemptWithin(from, until time.Duration) bool {
	if until <= l.declared || l.gap <= 0 {
		return false
	}
	k := max(0, (from-l.declared+l.gap-1)/l.gap)
	return l.declared+k*l.gap < until
}
