//go:build linux

package observers

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// maxConntrackQueries bounds the queue: of many attempts that fail at once, only some are looked up.
const maxConntrackQueries = 16

// ConntrackQuery asks for the backend of an attempt that failed.
type ConntrackQuery struct {
	Lane uint16
	Seq  uint64
	Tuple
}

// Conntrack looks up failed attempts in the connection tracking of the nodes and records the backends that the kernels chose.
type Conntrack struct {
	nodes   []conntrackNode
	queries chan ConntrackQuery
	record  record.Recorder
	now     func() time.Duration
}

type conntrackNode struct {
	name   string
	lookUp func(Tuple) (backend netip.AddrPort, found bool, err error)
}

// NewConntrack opens the connection tracking of the nodes.
func NewConntrack(nodes []Node, recorder record.Recorder, now func() time.Duration) (*Conntrack, error) {
	c := &Conntrack{queries: make(chan ConntrackQuery, maxConntrackQueries), record: recorder, now: now}
	for _, n := range nodes {
		lookUp, err := openConntrack(n)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, conntrackNode{n.Name, lookUp})
	}
	return c, nil
}

// Enqueue has an attempt looked up; it drops the query when the queue is full.
func (c *Conntrack) Enqueue(q ConntrackQuery) {
	select {
	case c.queries <- q:
	default:
	}
}

// Run looks queries up until ctx ends. A kernel's first error is recorded as a warning and ends the lookups.
func (c *Conntrack) Run(ctx context.Context) error {
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
		case q := <-c.queries:
			began := time.Now()
			e, err := c.answer(q)
			if err != nil {
				c.record.Event(record.Event{At: c.now(), Object: "conntrack", Body: record.Log{Program: "hitless", Level: "warning"},
					Text: fmt.Sprintf("conntrack lookups have ended: %v", err)})
				return nil
			}
			c.record.Event(e)
			rest.Reset(idleFactor * time.Since(began))
		}
	}
}

// answer looks the connection up on each node until one has it.
func (c *Conntrack) answer(q ConntrackQuery) (record.Event, error) {
	e := record.Event{Object: q.Source.String(), Text: fmt.Sprintf("no node has a connection of %s", q.Source)}
	choice := record.Choice{Lane: q.Lane, Seq: q.Seq}
	for _, n := range c.nodes {
		backend, found, err := n.lookUp(q.Tuple)
		if err != nil {
			return e, fmt.Errorf("%s: %w", n.name, err)
		}
		if found {
			e.Node, choice.Backend = n.name, backend
			e.Text = fmt.Sprintf("%s has the connection of %s with %s", n.name, q.Source, backend)
			break
		}
	}
	e.At, e.Body = c.now(), choice
	return e, nil
}
