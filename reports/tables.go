package reports

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table is one state of the load balancer's table for one address and port.
type table struct {
	from, at time.Duration // the change began and was complete
	nodes    []string      // in the order that the choice counts in
	all      []string
	since    []int // for each of nodes: the first table of its unbroken membership
	service  string
	seed     uint32
	hashed   bool // the choice is PickNode's
	logged   bool // the choice stands in the record: EventFlows
	sticky   bool // a flow keeps its node
}

// tables are the states of one address and port, in order of time.
type tables []table

// frontend is what the balancer keeps a table for.
type frontend struct {
	address netip.AddrPort
	udp     bool
}

// choice is what the balancer did with an attempt.
type choice struct {
	node  string
	epoch int // index of the table that applied; -1 for none
}

// frontendOf reads the address, port and protocol of an event of the balancer.
func frontendOf(e Event) (frontend, error) {
	address, err := netip.ParseAddr(e.Attrs["address"])
	if err != nil {
		return frontend{}, fmt.Errorf("a %s event at %v: %w", e.Kind, e.At, err)
	}
	port, err := strconv.ParseUint(e.Attrs["port"], 10, 16)
	if err != nil {
		return frontend{}, fmt.Errorf("a %s event at %v: %w", e.Kind, e.At, err)
	}
	return frontend{netip.AddrPortFrom(address.Unmap(), uint16(port)), strings.EqualFold(e.Attrs["protocol"], "udp")}, nil
}

// tableOf reads an EventBalancer.
func tableOf(e Event) (frontend, table, error) {
	key, err := frontendOf(e)
	if err != nil {
		return key, table{}, err
	}
	t := table{from: e.At, at: e.At, service: e.Attrs["service"], nodes: list(e.Attrs["nodes"]), all: list(e.Attrs["all"])}
	if text := e.Attrs["fromNs"]; text != "" {
		from, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return key, table{}, fmt.Errorf("a balancer event at %v: %w", e.At, err)
		}
		t.from = min(time.Duration(from), e.At)
	}
	switch policy := e.Attrs["policy"]; policy {
	case "roundrobin":
		t.logged = true
	case "sticky", "rehash":
		seed, err := strconv.ParseUint(e.Attrs["seed"], 10, 32)
		if err != nil {
			return key, table{}, fmt.Errorf("a balancer event at %v: %w", e.At, err)
		}
		t.hashed, t.sticky, t.seed = true, policy == "sticky", uint32(seed)
	}
	return key, t, nil
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// add appends a table and works out since when each of its nodes has been in.
func (ts tables) add(t table) tables {
	t.since = make([]int, len(t.nodes))
	for i, node := range t.nodes {
		t.since[i] = len(ts)
		if len(ts) > 0 {
			before := ts[len(ts)-1]
			if k := slices.Index(before.nodes, node); k >= 0 {
				t.since[i] = before.since[k]
			}
		}
	}
	return append(ts, t)
}

// opening is the attempt whose start decides the path of a: on a connection that stays open, and where flows keep their
// nodes, the one that opened it.
func (l *lane) opening(ts tables, a *Attempt) *Attempt {
	if l.protocol != protocolLong || a.TupleAge == 0 || !ts.sticky() {
		return a
	}
	opening := *a
	opening.Start, opening.Connect = a.Start-a.TupleAge, 0
	return &opening
}

// choose computes the path of an attempt from the table at its start, where each attempt is a new flow. While
// a change is under way (and when the first packet may have met it) the answering pod's node decides if pods only answer
// what reached their own node (local). Other attempts that came through belong to the table after it, if they started when it had begun,
// and those that did not to the one before: a balancer that takes a node out does so because it fails, and the last of its failures
// would else count as one of a node that is well.
func (ts tables) choose(a *Attempt, target netip.AddrPort, local bool) choice {
	answered := ""
	if local && a.Class != Misrouted {
		answered = a.Node
	}
	before, last := ts.around(a, 0)
	if answered != "" {
		for i := last; i >= max(before, 0); i-- {
			if !ts[i].hashed || ts[i].pick(a, target) == answered {
				return choice{answered, i}
			}
		}
		if last > before {
			return choice{answered, last}
		}
	}
	i := before
	through := a.Connect > 0 || !a.Class.Dropped()
	if last > before && (before < 0 || through && a.Start >= ts[before+1].from) {
		i = last
	}
	if i < 0 {
		return choice{"", -1}
	}
	return choice{ts[i].pick(a, target), i}
}

// around is the last table that was complete when the attempt started (-1 for none), and the last one that may have been
// in force when the attempt met the balancer or, by its own word, slack later.
func (ts tables) around(a *Attempt, slack time.Duration) (before, last int) {
	before, _ = slices.BinarySearchFunc(ts, a.Start, func(t table, at time.Duration) int {
		if t.at <= at {
			return -1
		}
		return 1
	})
	before--
	last = before
	for last+1 < len(ts) && ts[last+1].from <= a.Start+a.reach()+slack {
		last++
	}
	return before, last
}

// reach bounds how long the first packet took to the balancer: the time to connect when that was undisturbed, else
// far more than a client needs to send a packet.
func (a *Attempt) reach() time.Duration {
	if a.Connect > 0 && a.Retrans == 0 {
		return a.Connect
	}
	return 2 * time.Millisecond
}

// pick is the node that the table gives to a new flow; empty when it has none or the choice cannot be computed.
func (t *table) pick(a *Attempt, target netip.AddrPort) string {
	source := a.Source.Addr().Unmap()
	if !t.hashed || len(t.nodes) == 0 || !source.Is4() || !target.Addr().Is4() {
		return ""
	}
	return t.nodes[PickNode(netip.AddrPortFrom(source, a.Source.Port()), target, t.seed, len(t.nodes))]
}

// tenure is the unbroken time that a node was in the balancer's table.
type tenure struct {
	from, until time.Duration
	left        bool // the balancer took the node out at until
}

// memberSince returns the first table of the node's unbroken membership around table number epoch; it identifies the
// tenure. A node that answered without standing in the table has a tenure of that one table.
func (ts tables) memberSince(node string, epoch int32) int {
	if epoch < 0 || int(epoch) >= len(ts) {
		return -1
	}
	if k := slices.Index(ts[epoch].nodes, node); k >= 0 {
		return ts[epoch].since[k]
	}
	return int(epoch)
}

// tenure returns the tenure of the node that began with table number first; without a table it has no bounds.
func (ts tables) tenure(node string, first int) *tenure {
	if first < 0 {
		return nil
	}
	t := tenure{from: ts[first].from}
	if !slices.Contains(ts[first].nodes, node) {
		return &t
	}
	for _, next := range ts[first+1:] {
		if !slices.Contains(next.nodes, node) {
			t.until, t.left = next.at, true
			break
		}
	}
	return &t
}
