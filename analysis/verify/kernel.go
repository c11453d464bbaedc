package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Conntrack compares the record's lookups of failed attempts in the nodes' connection tracking with the packets.
type Conntrack struct {
	Lookups  int `json:"lookups"`  // of attempts whose connection the capture has
	Absent   int `json:"absent"`   // that found it on no node
	Nodes    int `json:"nodes"`    // that name a node whose interface the SYN passed
	Backends int `json:"backends"` // that name a backend to which the SYN went on over a captured interface
	Unseen   int `json:"unseen"`   // that name a backend to which no captured interface leads: it is on the same node
}

// Counters compares the counters of the client's kernel with the packets.
type Counters struct {
	Kernel  record.Counters `json:"kernel"`
	Packets record.Counters `json:"packets"`
}

// compareChoices compares each lookup with the connection of its attempt.
func (k *check) compareChoices(h *record.History, lanes []*lane) error {
	type key struct {
		lane uint16
		seq  uint64
	}
	of := map[key]*connection{}
	byID := map[uint16]*lane{}
	for _, l := range lanes {
		byID[l.ID] = l
	}
	for _, c := range k.all {
		if c.attempt != nil {
			of[key{c.attempt.Lane, c.attempt.Seq}] = c
		}
	}
	for e, err := range h.Events() {
		if err != nil {
			return err
		}
		choice, is := e.Body.(record.Choice)
		if c := of[key{choice.Lane, choice.Seq}]; is && c != nil {
			k.compareChoice(byID[choice.Lane], c, e.Node, choice)
		}
	}
	return nil
}

func (k *check) compareChoice(l *lane, c *connection, node string, choice record.Choice) {
	t := k.result.Conntrack
	if t == nil {
		t = &Conntrack{}
		k.result.Conntrack = t
	}
	t.Lookups++
	if node == "" {
		t.Absent++
		return
	}
	switch {
	case slices.Contains(c.nodes, node):
		t.Nodes++
	case len(c.nodes) > 0:
		k.found(OtherKernel, l, c.attempt, fmt.Sprintf("%s had it in its connection tracking, and its SYN went to %s", node, strings.Join(c.nodes, ", ")))
		return
	case !l.terminated():
		k.found(OtherKernel, l, c.attempt, fmt.Sprintf("%s had it in its connection tracking, and its SYN passed no node that was captured", node))
		return
	}
	switch {
	case slices.Contains(c.backends, choice.Backend):
		t.Backends++
	case len(c.backends) == 0:
		t.Unseen++
	default:
		k.found(OtherKernel, l, c.attempt, fmt.Sprintf("the connection tracking of %s had it with %s, and its SYN went on to %s", node, choice.Backend, c.backends[0]))
	}
}

// count counts what the client's kernel counts.
func (k *check) count() (n record.Counters) {
	n.Opened = len(k.all)
	for _, c := range k.all {
		n.Repeated += len(c.syns) - 1
	}
	return n
}

// CompareCounters compares the counters of the client's kernel, as the run wrote them, with the packets that Verify has read. The error is
// one of the file.
func (r *Result) CompareCounters(in io.Reader) error {
	c := &Counters{Packets: r.counted}
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&c.Kernel); err != nil {
		return fmt.Errorf("reading the counters of the client's kernel: %w", err)
	}
	r.Counters = c
	for _, n := range []struct {
		what            string
		kernel, packets int
	}{{"connections begun", c.Kernel.Opened, c.Packets.Opened}, {"SYNs sent again", c.Kernel.Repeated, c.Packets.Repeated}} {
		if n.kernel != n.packets {
			r.add(Finding{Kind: OtherKernel, Text: fmt.Sprintf("%s: the client's kernel counted %s, and the capture has %s",
				n.what, units.Thousands(n.kernel), units.Thousands(n.packets))})
		}
	}
	return nil
}

func (t *Conntrack) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "connection tracking: %s, %s without a connection, %s on the node of the packets, %s with their backend, %s with one that they do not show\n",
		units.Plural(t.Lookups, "lookup"), units.Thousands(t.Absent), units.Thousands(t.Nodes), units.Thousands(t.Backends), units.Thousands(t.Unseen))
}

func (c *Counters) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "kernel of the client: %s connections begun, %s SYNs sent again\n", units.Thousands(c.Kernel.Opened), units.Thousands(c.Kernel.Repeated))
}
