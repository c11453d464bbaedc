package record

import (
	"net/netip"
	"slices"
	"time"
)

// Path is the node that an attempt went over.
type Path struct {
	Node  string // empty when no load balancer chose one, or it had no node
	Epoch int    // index of the Members that applied; -1 for none
}

// Paths computes the node that each attempt went over, from the load balancer's events. The zero value is not ready; see
// NewPaths.
type Paths struct {
	members map[Frontend]Memberships
	flows   map[Frontend]flowLog
	words   map[string]string // node names of flows, so that they do not keep whole events in memory
}

// NewPaths returns one that knows no events.
func NewPaths() *Paths {
	return &Paths{members: map[Frontend]Memberships{}, flows: map[Frontend]flowLog{}, words: map[string]string{}}
}

// AddMembers adds a change of membership; changes come in order of time.
func (p *Paths) AddMembers(at time.Duration, m Membership) {
	key := NewFrontend(m.Address, m.Port, m.Protocol)
	p.members[key] = p.members[key].add(membersOf(at, m))
}

// AddFlows adds flows of a terminating load balancer's log. Settle must be called after the last of them.
func (p *Paths) AddFlows(f Flows) {
	key := NewFrontend(f.Address, f.Port, f.Protocol)
	p.flows[key] = p.flows[key].add(f.Flows, p.words)
}

// Settle orders the flows.
func (p *Paths) Settle() {
	for _, flows := range p.flows {
		flows.settle()
	}
}

// Of returns the memberships of a frontend, in order of time.
func (p *Paths) Of(f Frontend) Memberships { return p.members[f] }

// FlowNode returns the node of the logged connection that an attempt was made on; empty when the log has none.
func (p *Paths) FlowNode(l *DeclaredLane, a *Attempt) string {
	f, _ := p.flows[l.Frontend()].find(a, l.Opens())
	return f.Node
}

// Path computes the path of an attempt. Attempts of one lane come in order of their starts. Behind a load balancer that logs
// its choices, an attempt without a node failed before a node was chosen, as did one whose SYN was retransmitted: its other end is
// the load balancer.
func (p *Paths) Path(l *DeclaredLane, a *Attempt) Path {
	key := l.Frontend()
	ms := p.members[key]
	switch {
	case l.Node != "":
		return Path{l.Node, -1}
	case ms.Logged():
	case ms.sticky() && l.Protocol == ProtocolSticky:
		return l.stickyPath(ms, a)
	case ms.sticky():
		return l.reusedPath(a, func() Path { return ms.choose(l.opening(ms, a), l.Address, l.Local) })
	default:
		return ms.choose(a, l.Address, l.Local)
	}
	f, known := p.flows[key].find(a, l.Opens())
	if !known || a.Retrans > 0 {
		_, last := ms.around(a, 0)
		return Path{"", last}
	}
	return Path{f.Node, ms.withNode(f.Node, a)}
}

// Possible returns the nodes that an attempt on a connection of its own may have gone over: one, or several if the members changed while
// it started.
func (p *Paths) Possible(l *DeclaredLane, a *Attempt) []string {
	if l.Node != "" {
		return []string{l.Node}
	}
	return p.members[l.Frontend()].possible(a, l.Address)
}

// MembersAt is the index of the entry in force at an instant; -1 for none.
func (ms Memberships) MembersAt(at time.Duration) int {
	i, _ := ms.around(&Attempt{Start: at}, 0)
	return i
}

// withNode is the number of the entry from which the load balancer chose the node for an attempt.
func (ms Memberships) withNode(node string, a *Attempt) int {
	before, last := ms.around(a, flowLate)
	for i := max(before, 0); i <= last; i++ {
		if slices.Contains(ms[i].Nodes, node) {
			return i
		}
	}
	return max(before, 0)
}

// opening is the attempt whose start decides the path of a: on a connection that stays open, and where flows keep their
// nodes, the one that opened it.
func (l *DeclaredLane) opening(ms Memberships, a *Attempt) *Attempt {
	if l.Protocol != ProtocolLong || a.TupleAge == 0 || !ms.sticky() {
		return a
	}
	opening := *a
	opening.Start, opening.Connect = a.Start-a.TupleAge, 0
	return &opening
}

// usedFlow is a connection that an http-reuse lane keeps: its path and its last use.
type usedFlow struct {
	used time.Duration
	path Path
}

// reusedPath is the path of an attempt on a connection that an earlier attempt of the lane opened: flows keep their nodes, and
// TupleAge links each attempt to the one before. Otherwise choose computes the path.
func (l *DeclaredLane) reusedPath(a *Attempt, choose func() Path) Path {
	if l.Protocol != ProtocolReuse {
		return choose()
	}
	f, known := l.flows[a.Source]
	if !known || a.TupleAge == 0 || f.used != a.Start-a.TupleAge {
		f.path = choose()
	}
	if l.flows == nil {
		l.flows = map[netip.AddrPort]usedFlow{}
	}
	l.flows[a.Source] = usedFlow{used: a.Start, path: f.path}
	return f.path
}

// stickyPath is the path of an attempt on the one flow of a udp-sticky lane: the flow keeps its node until the node is no
// member, and then gets the one that the members give it. During a change, the rules of choose hold.
func (l *DeclaredLane) stickyPath(ms Memberships, a *Attempt) Path {
	before, last := ms.around(a, 0)
	after := l.stickyNode(ms, a, last)
	earlier := after
	if before != last {
		earlier = l.stickyNode(ms, a, before)
	}
	answered := l.Local && a.Node != "" && a.Class != Misrouted
	switch {
	case answered && a.Node == after.Node:
		return after
	case answered && a.Node == earlier.Node:
		return earlier
	case last > before && (before < 0 || a.Start >= ms[before+1].From):
		return after
	}
	return earlier
}

// stickyNode is the path of the lane's flow when entry number now is in force. Entries during which the schedule has no
// attempt are skipped.
func (l *DeclaredLane) stickyNode(ms Memberships, a *Attempt, now int) Path {
	at := Path{"", -1}
	for i := 0; i <= now; i++ {
		used := i == now || l.attemptWithin(ms[i].From, ms[i+1].From)
		if used && (at.Node == "" || !slices.Contains(ms[i].Nodes, at.Node)) {
			at.Node = ms[i].pick(a, l.Address)
		}
		at.Epoch = i
	}
	return at
}
