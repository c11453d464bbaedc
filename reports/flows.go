package reports

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flow is one connection that a balancer which terminates connections took from a client and gave to a node, in the
// balancer's own words. Nothing else tells the node of an attempt that got no answer there.
type Flow struct {
	Source netip.AddrPort // the client's end of the connection
	Node   string
	At     time.Duration // when the balancer took it; flowEarly and flowLate bound the error
}

// The balancer's log counts in milliseconds and takes its time to get here.
const (
	flowEarly = 5 * time.Millisecond
	flowLate  = 100 * time.Millisecond
)

// FormatFlows is the attribute `flows` of an EventFlows: source/node/atNs, separated by blanks.
func FormatFlows(flows []Flow) string {
	var b strings.Builder
	for i, f := range flows {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s/%s/%d", f.Source, f.Node, int64(f.At))
	}
	return b.String()
}

func parseFlow(text string) (Flow, error) {
	source, rest, _ := strings.Cut(text, "/")
	node, at, _ := strings.Cut(rest, "/")
	address, err := netip.ParseAddrPort(source)
	if err != nil {
		return Flow{}, err
	}
	ns, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return Flow{}, err
	}
	return Flow{netip.AddrPortFrom(address.Addr().Unmap(), address.Port()), node, time.Duration(ns)}, nil
}

// flowLog is what a balancer said about the connections to one address and port; settle puts it in order.
type flowLog []Flow

// flowsOf reads an EventFlows.
func flowsOf(e Event, nodes map[string]string) (frontend, flowLog, error) {
	key, err := frontendOf(e)
	if err != nil {
		return key, nil, err
	}
	var found flowLog
	for _, text := range strings.Fields(e.Attrs["flows"]) {
		f, err := parseFlow(text)
		if err != nil {
			return key, nil, fmt.Errorf("a flow (%s) of the event at %v: %w", text, e.At, err)
		}
		if nodes[f.Node] == "" {
			nodes[f.Node] = strings.Clone(f.Node) // else each name keeps the whole event in memory
		}
		f.Node = nodes[f.Node]
		found = append(found, f)
	}
	return key, found, nil
}

func (fs flowLog) settle() {
	slices.SortFunc(fs, func(x, y Flow) int { return cmp.Or(x.Source.Compare(y.Source), cmp.Compare(x.At, y.At)) })
}

// of finds the connection that an attempt was made on. Where each attempt opens one (opens), no five-tuple is dialled again
// before its last attempt has ended; elsewhere it is the latest one with that five-tuple.
func (fs flowLog) of(a *Attempt, opens bool) (Flow, bool) {
	source := netip.AddrPortFrom(a.Source.Addr().Unmap(), a.Source.Port())
	i, _ := slices.BinarySearchFunc(fs, a.Start+a.Total+flowLate, func(f Flow, until time.Duration) int {
		return cmp.Or(f.Source.Compare(source), cmp.Compare(f.At, until+1))
	})
	i--
	for opens && i > 0 && fs[i-1].Source == source && fs[i-1].At >= a.Start-flowEarly {
		i--
	}
	if i < 0 || fs[i].Source != source || (opens && fs[i].At < a.Start-flowEarly) {
		return Flow{}, false
	}
	return fs[i], true
}

// way is the path of an attempt. Behind a balancer that logs its choices, an attempt without a node met its fault before
// a node was chosen, and so did one whose SYN had to be sent again: its other end is the balancer.
func (a *analysis) way(l *lane, at *Attempt) choice {
	key := l.frontend()
	ts := a.tables[key]
	switch {
	case l.over != "":
		return choice{l.over, -1}
	case ts.logged():
	case ts.sticky() && l.protocol == protocolSticky:
		return l.chooseKept(ts, at)
	case ts.sticky():
		return l.kept(at, func() choice { return ts.choose(l.opening(ts, at), l.address, l.local) })
	default:
		return ts.choose(at, l.address, l.local)
	}
	f, known := a.flows[key].of(at, l.opens())
	if !known || at.Retrans > 0 {
		_, last := ts.around(at, 0)
		return choice{"", last}
	}
	return choice{f.Node, ts.holding(f.Node, at)}
}

// logged reports whether the balancer tells which node it gave each connection to (EventFlows), because the choice
// cannot be computed.
func (ts tables) logged() bool { return len(ts) > 0 && ts[0].logged }

// sticky reports whether flows keep their nodes.
func (ts tables) sticky() bool { return len(ts) > 0 && ts[0].sticky }

// holding is the number of the table from which the balancer took the node for an attempt.
func (ts tables) holding(node string, a *Attempt) int {
	before, last := ts.around(a, flowLate)
	for i := max(before, 0); i <= last; i++ {
		if slices.Contains(ts[i].nodes, node) {
			return i
		}
	}
	return max(before, 0)
}
