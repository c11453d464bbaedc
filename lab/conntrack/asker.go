// Package conntrack asks the connection tracking of the nodes which backend the kernel gave the attempts that failed. It is
// not for changing it.
package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/reports"
)

// An Asker has room for waiting questions, and asks so seldom that it costs a node no more than a part in leisure of the time:
// of many attempts that fail at once, some are asked about.
const (
	waiting = 16
	leisure = 20
)

// Question is about an attempt that failed.
type Question struct {
	Lane uint16
	Seq  uint64
	Tuple
}

// Asker asks on all nodes.
type Asker struct {
	nodes     []node
	questions chan Question
	record    reports.Recorder
	now       func() time.Duration
}

type node struct {
	name string
	look func(Tuple) (netip.AddrPort, bool, error)
}

// New prepares to ask the nodes.
func New(nodes []*topology.Node, record reports.Recorder, now func() time.Duration) (*Asker, error) {
	a := &Asker{questions: make(chan Question, waiting), record: record, now: now}
	for _, n := range nodes {
		look, err := lookupOf(n)
		if err != nil {
			return nil, err
		}
		a.nodes = append(a.nodes, node{n.Name, look})
	}
	return a, nil
}

// Ask has the nodes asked about an attempt, unless too many questions wait already.
func (a *Asker) Ask(q Question) {
	select {
	case a.questions <- q:
	default:
	}
}

// Run asks until the context ends. A kernel that does not answer is told in the record, and asked no more.
func (a *Asker) Run(ctx context.Context) error {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case q := <-a.questions:
			began := time.Now()
			e, err := a.answer(q)
			if err != nil {
				a.record.Event(reports.Event{At: a.now(), Kind: reports.EventLog, Object: "conntrack", Attrs: map[string]string{"program": "hitless", "level": "warning"},
					Text: fmt.Sprintf("nobody is asked any more which backends the kernel chose: %v", err)})
				return nil
			}
			a.record.Event(e)
			rest.Reset(leisure * time.Since(began))
		}
	}
}

// answer asks each node, until one knows the connection: it took it.
func (a *Asker) answer(q Question) (reports.Event, error) {
	e := reports.Event{Kind: reports.EventChoice, Object: q.Source.String(), Text: fmt.Sprintf("no node has a connection of %s", q.Source),
		Attrs: map[string]string{"lane": strconv.Itoa(int(q.Lane)), "seq": strconv.FormatUint(q.Seq, 10)}}
	for _, n := range a.nodes {
		backend, known, err := n.look(q.Tuple)
		if err != nil {
			return e, fmt.Errorf("%s: %w", n.name, err)
		}
		if known {
			e.Node, e.Attrs["backend"] = n.name, backend.String()
			e.Text = fmt.Sprintf("%s has the connection of %s with %s", n.name, q.Source, backend)
			break
		}
	}
	e.At = a.now()
	return e, nil
}
