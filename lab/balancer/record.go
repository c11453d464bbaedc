package balancer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// startChecks has a node asked for a service, when it is this program that asks.
func (b *Balancer) startChecks(s *service, n *topology.Node, t *target) {
	if b.path.judges() {
		return
	}
	ctx, stop := context.WithCancel(b.ctx)
	t.stop = stop
	c := checker{question: t.question, node: n.Addr, interval: b.cfg.Interval, phase: phase(n.Number, b.cfg.Interval),
		now: b.cfg.Now, dial: b.dial}
	b.checks.Go(func() {
		c.run(ctx, func(got answer) {
			b.post(func() error {
				if ctx.Err() != nil { // the target left, or is asked something else by now
					return nil
				}
				return b.checked(s, n.Name, t, got)
			})
		})
	})
}

// checked takes the answer of one check.
func (b *Balancer) checked(s *service, name string, t *target, got answer) error {
	turned, flipped := t.health.observe(got.pass, b.cfg.Fall, b.cfg.Rise)
	if turned || flipped {
		b.recordHealth(s.key, name, t.question.target, got, t.health.streak)
	}
	if !flipped {
		return nil
	}
	return b.apply(s)
}

// verdict is the answer of a health check that a judging forwarder made, and what it made of it.
type verdict struct {
	service, node string
	port          uint16 // of the service
	answer
	up   bool          // the node takes new connections
	from time.Duration // if that is new: not later than it became so
}

// serverChanged takes what a judging forwarder saw. It is called by the goroutine of Run.
func (b *Balancer) serverChanged(v verdict) error {
	s := b.services[v.service]
	if s == nil || s.set == nil || s.judged[judgedKey{v.port, v.node}] == nil {
		return nil // a late word about what is no more
	}
	h := s.judged[judgedKey{v.port, v.node}]
	flipped := h.up != v.up
	turned := h.count(v.pass)
	h.up = v.up
	if turned || flipped {
		b.recordHealth(s.key, v.node, s.question.target, v.answer, h.streak)
	}
	if flipped {
		b.record(s, *s.set, change{from: v.from, at: v.at})
	}
	return nil
}

func (b *Balancer) recordHealth(service, node, target string, got answer, count int) {
	result := "fail"
	if got.pass {
		result = "pass"
	}
	b.cfg.Recorder.Event(record.Event{At: got.at, Node: node, Object: service,
		Text: fmt.Sprintf("health check of %s on %s: %s (%s), %d in a row", service, node, result, got.status, count),
		Body: record.HealthCheck{Result: result, Status: got.status, Target: target, Count: count}})
}

// change is when a table changed, and how.
type change struct {
	from, at time.Duration // it began and was complete
	reloaded bool          // the forwarder started anew: it knows nothing of the health of nodes
}

// record tells the history what has changed in a table, port by port. The zero table is that of a withdrawn service.
func (b *Balancer) record(s *service, t table, c change) {
	now := make([]line, len(t.ports))
	for i, p := range t.ports {
		now[i] = line{protocol: p.protocol, port: p.number, nodes: names(b.open(s, t, p)), all: names(t.all)}
	}
	for _, old := range s.written {
		kept := slices.ContainsFunc(now, func(l line) bool { return l.protocol == old.protocol && l.port == old.port })
		if !kept {
			b.recordLine(s, line{protocol: old.protocol, port: old.port}, c)
		}
	}
	for _, l := range now {
		if c.reloaded || !slices.Contains(s.written, l) {
			b.recordLine(s, l, c)
		}
	}
	s.written = now
}

// open are the nodes to which new connections to the port go.
func (b *Balancer) open(s *service, t table, p port) []node {
	if !b.path.judges() {
		return t.nodes
	}
	return slices.DeleteFunc(slices.Clone(t.all), func(n node) bool {
		h := s.judged[judgedKey{p.number, n.name}]
		return h == nil || !h.up
	})
}

func (b *Balancer) recordLine(s *service, l line, c change) {
	body := record.Membership{Service: s.key, Address: s.addr, Port: l.port, Protocol: strings.ToLower(string(l.protocol)),
		Nodes: split(l.nodes), All: split(l.all), Policy: b.cfg.Flows, Seed: new(b.cfg.Seed), From: new(c.from), Reloaded: c.reloaded}
	if b.path.judges() {
		body.Policy, body.Seed = "roundrobin", nil // HAProxy's default; not a function of the five-tuple
	}
	b.cfg.Recorder.Event(record.Event{At: c.at, Object: s.key, Body: body,
		Text: fmt.Sprintf("%s at %s:%d goes to %s (of %s)", s.key, s.addr, l.port, orNone(l.nodes), orNone(l.all))})
}

func split(names string) []string {
	return strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
}

func names(nodes []node) string {
	words := make([]string, len(nodes))
	for i, n := range nodes {
		words[i] = n.name
	}
	return strings.Join(words, ",")
}

func orNone(list string) string { return or(list, "no node") }
