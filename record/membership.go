package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Frontend is an address of the load balancer.
type Frontend struct {
	Address netip.AddrPort
	UDP     bool
}

// NewFrontend returns the frontend of an address, a port and a protocol as events give them.
func NewFrontend(address netip.Addr, port uint16, protocol string) Frontend {
	return Frontend{netip.AddrPortFrom(address.Unmap(), port), strings.EqualFold(protocol, "udp")}
}

// Members are the nodes that the load balancer sent new connections of one frontend to, until the next change.
type Members struct {
	From, At time.Duration // the change began and was complete
	Nodes    []string      // in the order that the choice counts in
	All      []string
	Service  string

	since  []int // for each of Nodes: the first entry of its unbroken membership
	seed   uint32
	hashed bool // the choice is PickNode's
	client bool // of a hashed choice: of the addresses alone
	logged bool // the choice is in the record: Flows
	sticky bool // a flow keeps its node
}

// Memberships are the successive members of one frontend, in order of time.
type Memberships []Members

// check finds a policy whose choice cannot be computed.
func (m Membership) check() error {
	if (m.Policy == BalancerSticky || m.Policy == BalancerRehash) && m.Seed == nil {
		return fmt.Errorf("policy %s without a seed", m.Policy)
	}
	return nil
}

func membersOf(at time.Duration, m Membership) Members {
	t := Members{From: at, At: at, Service: m.Service, Nodes: m.Nodes, All: m.All}
	if m.From != nil {
		t.From = min(*m.From, at)
	}
	switch m.Policy {
	case BalancerRoundRobin:
		t.logged = true
	case BalancerSticky, BalancerRehash:
		t.hashed, t.sticky, t.client = true, m.Policy == BalancerSticky, m.ByClient
		if m.Seed != nil {
			t.seed = *m.Seed
		}
	}
	return t
}

// add appends an entry and computes since when each of its nodes has been a member.
func (ms Memberships) add(m Members) Memberships {
	m.since = make([]int, len(m.Nodes))
	for i, node := range m.Nodes {
		m.since[i] = len(ms)
		if len(ms) > 0 {
			before := ms[len(ms)-1]
			if k := slices.Index(before.Nodes, node); k >= 0 {
				m.since[i] = before.since[k]
			}
		}
	}
	return append(ms, m)
}

// Logged reports whether the load balancer's log gives the node of each connection.
func (ms Memberships) Logged() bool { return len(ms) > 0 && ms[0].logged }

func (ms Memberships) sticky() bool { return len(ms) > 0 && ms[0].sticky }

// choose computes the path of an attempt that is a new flow. During a change, the answering pod's node decides if pods
// answer only what reached their own node (local). Other attempts belong to the members of the last change that had begun when they started. A
// failed one belongs to the old members if they give it a node that is being removed: a node is removed because it fails.
func (ms Memberships) choose(a *Attempt, target netip.AddrPort, local bool) Path {
	answered := ""
	if local && a.Class != Misrouted {
		answered = a.Node
	}
	before, last := ms.around(a, 0)
	if answered != "" {
		for i := last; i >= max(before, 0); i-- {
			if !ms[i].hashed || ms[i].pick(a, target) == answered {
				return Path{answered, i}
			}
		}
		if last > before {
			return Path{answered, last}
		}
	}
	if last < 0 {
		return Path{"", -1}
	}
	i := max(before, 0)
	through, old := a.Connect > 0 || !a.Class.Dropped(), ms[i].pick(a, target)
	for i < last && ms[i+1].From <= a.Start && (through || old == "" || slices.Contains(ms[i+1].Nodes, old)) {
		i++
	}
	return Path{ms[i].pick(a, target), i}
}

// possible returns the node of an attempt that is a new flow by each entry that may have been in force when it reached the load
// balancer: several during a change.
func (ms Memberships) possible(a *Attempt, target netip.AddrPort) (nodes []string) {
	before, last := ms.around(a, 0)
	for i := max(before, 0); i <= last; i++ {
		nodes = append(nodes, ms[i].pick(a, target))
	}
	return nodes
}

// around returns the last entry that was complete when the attempt started (-1 for none), and the last one that may have been
// in force when the attempt reached the load balancer. slack allows for the error of a log's time.
func (ms Memberships) around(a *Attempt, slack time.Duration) (before, last int) {
	before, _ = slices.BinarySearchFunc(ms, a.Start, func(m Members, at time.Duration) int {
		if m.At <= at {
			return -1
		}
		return 1
	})
	before--
	last = before
	for last+1 < len(ms) && ms[last+1].From <= a.Start+a.reach()+slack {
		last++
	}
	return before, last
}

// reach bounds the time of the first packet to the load balancer: the undisturbed time to connect, or 2 ms.
func (a *Attempt) reach() time.Duration {
	if a.Connect > 0 && a.Retrans == 0 {
		return a.Connect
	}
	return 2 * time.Millisecond
}

// pick is the node that a new flow gets; empty when there is none or the choice cannot be computed.
func (m *Members) pick(a *Attempt, target netip.AddrPort) string {
	source := a.Source.Addr().Unmap()
	if !m.hashed || len(m.Nodes) == 0 || !source.IsValid() || source.Is4() != target.Addr().Is4() {
		return ""
	}
	port := a.Source.Port()
	if m.client {
		port, target = 0, netip.AddrPortFrom(target.Addr(), 0)
	}
	return m.Nodes[PickNode(netip.AddrPortFrom(source, port), target, m.seed, len(m.Nodes))]
}

// MemberSince returns the first entry of the node's unbroken membership around entry number epoch; it identifies the
// tenure. A node that answered without being a member has a tenure of that one entry.
func (ms Memberships) MemberSince(node string, epoch int32) int {
	if epoch < 0 || int(epoch) >= len(ms) {
		return -1
	}
	if k := slices.Index(ms[epoch].Nodes, node); k >= 0 {
		return ms[epoch].since[k]
	}
	return int(epoch)
}

// Tenure is the unbroken time that a node was a member.
type Tenure struct {
	From, Until time.Duration
	Left        bool // the load balancer removed the node at Until
}

// Tenure returns the tenure of the node that began with entry number first. It has no bounds, and is nil, without one.
func (ms Memberships) Tenure(node string, first int) *Tenure {
	if first < 0 {
		return nil
	}
	t := Tenure{From: ms[first].From}
	if !slices.Contains(ms[first].Nodes, node) {
		return &t
	}
	for _, next := range ms[first+1:] {
		if !slices.Contains(next.Nodes, node) {
			t.Until, t.Left = next.At, true
			break
		}
	}
	return &t
}
