package balancer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// startChecks starts the health checks of a node for a service, unless the forwarder runs them.
func (b *Balancer) startChecks(s *service, n *topology.Node, t *target) {
	if b.path.checksHealth() {
		return
	}
	ctx, stop := context.WithCancel(b.ctx)
	t.stop = stop
	c := checker{checkSpec: t.checkSpec, node: n.AddrOf(s.family), interval: b.cfg.Interval, phase: phase(n.Number, b.cfg.Interval),
		now: b.cfg.Now, dial: b.dial}
	b.checks.Go(func() {
		c.run(ctx, func(got checkResult) {
			b.post(func() error {
				if ctx.Err() != nil { // the node was removed, or its health check has changed
					return nil
				}
				return b.checkDone(s, n.Name, t, got)
			})
		})
	})
}

// checkDone applies the result of one health check.
func (b *Balancer) checkDone(s *service, name string, t *target, got checkResult) error {
	resultChanged, stateChanged := t.health.observe(got.pass, b.cfg.Fall, b.cfg.Rise)
	if resultChanged || stateChanged {
		b.recordHealth(s.frontend, name, t.checkSpec.target, got, t.health.streak)
	}
	if !stateChanged {
		return nil
	}
	return b.apply(s)
}

// serverCheck is the result of a health check by a forwarder that runs its own, and the state of the node after it.
type serverCheck struct {
	frontend
	node string
	port uint16 // of the service
	checkResult
	up   bool          // the node receives new connections
	from time.Duration // lower bound of the time of a change of up
}

// serverChanged applies a check result of a forwarder that runs its own health checks. The goroutine of Run calls it.
func (b *Balancer) serverChanged(v serverCheck) error {
	s := b.services[v.frontend]
	if s == nil || s.set == nil || s.serverHealth[serverKey{v.port, v.node}] == nil {
		return nil // the service or node has been removed
	}
	h := s.serverHealth[serverKey{v.port, v.node}]
	stateChanged := h.up != v.up
	resultChanged := h.count(v.pass)
	h.up = v.up
	if resultChanged || stateChanged {
		b.recordHealth(s.frontend, v.node, s.checkSpec.target, v.checkResult, h.streak)
	}
	if stateChanged {
		b.record(s, *s.set, change{from: v.from, at: v.at})
	}
	return nil
}

func (b *Balancer) recordHealth(id frontend, node, target string, got checkResult, count int) {
	result := record.HealthFail
	if got.pass {
		result = record.HealthPass
	}
	what := id.service
	if id.family == record.IPv6 {
		what += " (IPv6)"
	}
	b.cfg.Recorder.Event(record.Event{At: got.at, Node: node, Object: id.service,
		Text: fmt.Sprintf("health check of %s on %s: %s (%s), %d in a row", what, node, result, got.status, count),
		Body: record.HealthCheck{Result: result, Status: got.status, Target: target, Count: count}})
}

// change is the time and kind of a change of a table.
type change struct {
	from, at time.Duration // before and after the change
	reloaded bool          // the forwarder restarted: every node is up until its first check
}

// record records the changes of a table for each port. A withdrawn service has the zero table.
func (b *Balancer) record(s *service, t table, c change) {
	now := make([]line, len(t.ports))
	for i, p := range t.ports {
		now[i] = line{protocol: p.protocol, port: p.number, nodes: names(b.open(s, t, p)), all: names(t.all), byClient: t.requests.byClient}
	}
	for _, old := range s.recorded {
		kept := slices.ContainsFunc(now, func(l line) bool { return l.protocol == old.protocol && l.port == old.port })
		if !kept {
			b.recordLine(s, line{protocol: old.protocol, port: old.port}, c)
		}
	}
	for _, l := range now {
		if c.reloaded || !slices.Contains(s.recorded, l) {
			b.recordLine(s, l, c)
		}
	}
	s.recorded = now
}

// open returns the nodes that receive new connections to the port.
func (b *Balancer) open(s *service, t table, p port) []node {
	if !b.path.checksHealth() {
		return t.nodes
	}
	return slices.DeleteFunc(slices.Clone(t.all), func(n node) bool {
		h := s.serverHealth[serverKey{p.number, n.name}]
		return h == nil || !h.up
	})
}

func (b *Balancer) recordLine(s *service, l line, c change) {
	body := record.Membership{Service: s.service, Address: s.addr, Port: l.port, Protocol: strings.ToLower(string(l.protocol)),
		Nodes: split(l.nodes), All: split(l.all), Policy: record.BalancerPolicy(b.cfg.Flows), Seed: new(b.cfg.Seed), ByClient: l.byClient,
		From: new(c.from), Reloaded: c.reloaded}
	if b.path.checksHealth() {
		body.Policy, body.Seed = record.BalancerRoundRobin, nil // HAProxy's default; not a function of the five-tuple
	}
	b.cfg.Recorder.Event(record.Event{At: c.at, Object: s.service, Body: body,
		Text: fmt.Sprintf("%s at %s goes to %s (of %s)", s.service, netip.AddrPortFrom(s.addr, l.port), orNone(l.nodes), orNone(l.all))})
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
