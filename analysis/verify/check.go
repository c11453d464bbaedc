package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// check compares lanes with the connections of the capture.
type check struct {
	result *Result
	all    []*connection
	byPair map[pair][]*connection
	bySeq  map[uint32][]*connection // of the SYN
	end    time.Duration            // of the client's capture
}

func newCheck(r *Result, c *capture) *check {
	k := &check{result: r, bySeq: map[uint32][]*connection{}}
	client := c.packets[clientPlace]
	k.all, k.byPair = connections(client)
	k.end = client[len(client)-1].at
	for _, c := range k.all {
		k.bySeq[c.seq] = append(k.bySeq[c.seq], c)
	}
	for _, place := range slices.Sorted(maps.Keys(c.packets)) {
		if place != clientPlace {
			k.locate(place, c.packets[place])
		}
	}
	return k
}

// locate notes which connections went over a node: their SYN passed its interface. A proxy changes the target of a SYN, and perhaps its
// source, but not its number.
func (k *check) locate(node string, packets []packet) {
	for i := range packets {
		p := &packets[i]
		if !p.syn || p.isACK {
			continue
		}
		for _, c := range k.bySeq[p.seq] {
			switch {
			case c.client == p.from && c.server == p.to:
				c.passed(node, p.at)
			case c.server != p.to && p.at >= c.begun() && p.at <= c.syns[len(c.syns)-1]+time.Second:
				c.backends = append(c.backends, p.to)
			}
		}
	}
}

// passed notes that a SYN passed a node's interface. One that was sent again may go over another node.
func (c *connection) passed(node string, at time.Duration) {
	c.nodes = append(c.nodes, node)
	if first := len(c.syns) == 1 || at < c.syns[1]; first && (c.node == "" || at < c.nodeAt) {
		c.node, c.nodeAt = node, at
	}
}

// compareLane compares each attempt of a lane with its connection.
func (k *check) compareLane(l *lane) {
	l.result = newLaneResult(l)
	for i := range l.attempts {
		a := &l.attempts[i]
		c := k.find(a, l)
		s := sight{outcomeOf(a.Class), l.nodes[i]}
		switch {
		case c == nil && a.Class == record.Probe:
			l.result.Unstarted++
		case c == nil:
			k.found(NoPackets, l, a, fmt.Sprintf("no SYN from %s to %s within %s of %s", a.Source, l.Address, tolerance, at(a.Start)))
		default:
			c.attempt = a
			s = k.compareAttempt(l, i, a, c)
		}
		l.seen = append(l.seen, s)
		l.result.count(a, s)
	}
}

// find returns the connection whose first SYN is the attempt's; nil for none.
func (k *check) find(a *record.Attempt, l *lane) *connection {
	for _, c := range k.byPair[pair{a.Source, l.Address}] {
		if d := c.begun() - a.Start; c.attempt == nil && -tolerance <= d && d <= tolerance {
			return c
		}
	}
	return nil
}

func (k *check) compareAttempt(l *lane, i int, a *record.Attempt, c *connection) sight {
	s, told := sight{c.outcome(l.limits()), l.nodes[i]}, outcomeOf(a.Class)
	if s.outcome == delayed && (a.Class == record.Misrouted || a.Class == record.WrongAnswer) {
		s.outcome = answered // the record looks at the content first
	}
	switch {
	case told == "": // the prober gave up for a reason of its own
		l.result.Unstarted++
		s.outcome = ""
	case s.outcome == undecided && c.accepted+l.Reply+tolerance < k.end:
		k.found(OtherOutcome, l, a, fmt.Sprintf("the record says %s, and the connection has no end in the capture: %s", a.Class, c))
		s.outcome = told
	case s.outcome == undecided:
		l.result.Undecided++
		s.outcome = told
	case s.outcome != told && c.cutOff(told):
		l.result.CutOff++
		s.outcome = told
	case s.outcome != told && c.ties(told, l.limits()):
		l.result.Ties++
		s.outcome = told
	case s.outcome != told:
		k.found(OtherOutcome, l, a, fmt.Sprintf("the record says %s, the packets %s: %s", a.Class, s.outcome, c))
	}
	if late := c.begun() - a.Intended; late < -tolerance || late > maxLateness+tolerance {
		k.found(OtherTime, l, a, fmt.Sprintf("the record charges it to %s, and its first SYN left at %s", at(a.Intended), at(c.begun())))
	}
	switch {
	case c.node == "" && len(c.nodes) == 0 && c.accepted != 0 && s.node != "" && !l.terminated():
		k.found(OtherPath, l, a, fmt.Sprintf("the record has it on the path over %s, and its SYN, which was accepted, passed no node that was captured", s.node))
	case c.node == "":
		l.result.Unlocated++
	case s.node == "": // behind a load balancer that had chosen no node when the attempt failed
	case c.node != s.node && slices.Contains(l.paths.Possible(l.DeclaredLane, a), c.node):
		l.result.Ties++
	case c.node != s.node:
		k.found(OtherPath, l, a, fmt.Sprintf("the record has it on the path over %s, and its SYN went to %s", s.node, c.node))
		s.node = c.node
	}
	return s
}

// findUnrecorded finds connections to the targets of verified lanes that no attempt explains. A target that a lane without single
// connections shares has such connections.
func (k *check) findUnrecorded(lanes []*lane) {
	byTarget, shared := map[string]*lane{}, map[string]bool{}
	for _, l := range lanes {
		target := l.Address.String()
		if l.result == nil {
			shared[target] = shared[target] || !l.Datagrams()
		} else if byTarget[target] == nil {
			byTarget[target] = l
		}
	}
	for _, c := range k.all {
		l := byTarget[c.server.String()]
		if c.attempt != nil || l == nil || shared[c.server.String()] || c.begun() < l.Declared || ofLoop(c.client) {
			continue
		}
		k.result.add(Finding{Kind: Unrecorded, Lane: l.Name, At: units.Seconds(c.begun()), Text: "a connection that the record does not have: " + c.String()})
	}
}

// found adds a finding about an attempt.
func (k *check) found(kind Kind, l *lane, a *record.Attempt, text string) {
	k.result.add(Finding{Kind: kind, Lane: l.Name, Attempt: &a.Seq, At: units.Seconds(a.Intended), Text: text})
}

func at(d time.Duration) string { return fmt.Sprintf("%+.6f s", d.Seconds()) }
