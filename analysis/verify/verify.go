// Package verify counts the losses of a run a second time, from a capture of the packets that open, close, refuse and reject
// connections (package observers/capture), and compares the result with the record and its report. It shares no code with the probes.
package verify

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// tolerance is how far a time of the record may be from that of the packet.
const tolerance = 20 * time.Millisecond

// latest start after the scheduled one: docs/measuring.md.
const maxLateness = 250 * time.Millisecond

// clientPlace is the place of the capture at the client.
const clientPlace = "client"

// Verify compares a record and its report with a capture of the same run. Errors are a capture or record that cannot be read, and a
// record without single attempts.
func Verify(h *record.History, report *analysis.Report, packets io.Reader) (*Result, error) {
	if h.Run.Record == record.RecordThinned {
		return nil, errors.New("the record is thinned: it has no single attempts where nothing happened; repeat the run with --set record=all --capture")
	}
	c, err := readCapture(packets)
	if err != nil {
		return nil, err
	}
	if len(c.packets[clientPlace]) == 0 {
		return nil, errors.New("the capture has no packet of the client: it is of another program or of another place; repeat the run with --capture")
	}
	lanes, err := lanesOf(h)
	if err != nil {
		return nil, err
	}
	r := NewResult(h, report)
	r.captured, r.Lost = true, c.lost
	for _, place := range c.unsaid {
		r.Missing = append(r.Missing, "number of packets that the capture lost at "+place)
	}
	k := newCheck(r, c)
	for _, l := range lanes {
		if why := l.unverifiable(); why != "" {
			r.Skipped = append(r.Skipped, SkippedLane{l.Name, why})
			continue
		}
		k.compareLane(l)
		r.Lanes = append(r.Lanes, l.result)
	}
	k.findUnrecorded(lanes)
	if err := k.compareChoices(h, lanes); err != nil {
		return nil, err
	}
	r.counted = k.count()
	for _, l := range lanes {
		if l.result != nil {
			k.compareReport(l, report)
		}
	}
	return r, nil
}

// lane is a lane with its attempts.
type lane struct {
	*record.DeclaredLane
	attempts []record.Attempt // in the order of their starts
	nodes    []string         // by attempt: the record's path
	paths    *record.Paths    // of all lanes
	seen     []sight          // by attempt
	result   *LaneResult
}

// sight is what the capture shows of an attempt.
type sight struct {
	outcome outcome // of the packets; of the record where packets do not tell
	node    string
}

// failed reports whether an attempt counts as dropped or delayed, by the packets. Packets without data do not tell a wrong answer from a
// right one, so the record decides between them.
func (s sight) failed(a *record.Attempt) bool { return s.dropped(a) || s.outcome == delayed }

func (s sight) dropped(a *record.Attempt) bool {
	switch s.outcome {
	case answered:
		return a.Class == record.Misrouted || a.Class == record.WrongAnswer
	case delayed, undecided, "":
		return false
	}
	return true
}

// limits are those of docs/measuring.md. Only an answer behind a load balancer that terminates connections can be slow.
func (l *lane) limits() limits {
	own := limits{dial: l.Dial, reply: l.Reply, noRequest: l.Protocol == record.ProtocolDial}
	if l.terminated() {
		own.slow = l.Reply / 2
	}
	return own
}

// terminated reports whether a load balancer terminates the lane's connections, so that no SYN of the client reaches a node.
func (l *lane) terminated() bool { return l.paths.Of(l.Frontend()).Logged() }

// unverifiable is why packets cannot tell the outcomes of a lane; empty if they can.
func (l *lane) unverifiable() string {
	switch {
	case l.Datagrams():
		return "its datagrams are not captured"
	case !l.Opens():
		return "its attempts share connections, and the capture has only packets that open and close them"
	case !l.Address.IsValid():
		return "its target is no address"
	case l.Client != clientPlace:
		return "its client is " + l.Client + ", where nothing was captured"
	}
	return ""
}

// lanesOf reads the lanes with their attempts and the paths of these.
func lanesOf(h *record.History) ([]*lane, error) {
	byID, paths := map[uint16]*lane{}, record.NewPaths()
	var all []*lane
	for e, err := range h.Events() {
		if err != nil {
			return nil, err
		}
		switch body := e.Body.(type) {
		case record.Lane:
			d, err := record.Declare(e.At, body)
			if err != nil {
				return nil, err
			}
			byID[d.ID] = &lane{DeclaredLane: d}
			all = append(all, byID[d.ID])
		case record.Membership:
			paths.AddMembers(e.At, body)
		case record.Flows:
			paths.AddFlows(body)
		}
	}
	paths.Settle()
	for a, err := range h.Attempts() {
		if err != nil {
			return nil, err
		}
		l := byID[a.Lane]
		if l == nil {
			return nil, fmt.Errorf("attempt %d is of lane %d, which the record does not declare", a.Seq, a.Lane)
		}
		l.attempts = append(l.attempts, a)
	}
	for _, l := range all {
		l.paths = paths
		slices.SortStableFunc(l.attempts, func(a, b record.Attempt) int { return int(a.Start - b.Start) })
		for i := range l.attempts {
			l.nodes = append(l.nodes, paths.Path(l.DeclaredLane, &l.attempts[i]).Node)
		}
	}
	return all, nil
}
