package engine

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// movedAddress is a kernel of a node that also got another address.
type movedAddress struct {
	kernel.Kernel
	node netip.Addr
}

func (m movedAddress) Addresses() (kernel.Addresses, error) {
	all, err := m.Kernel.Addresses()
	all.Node = append(all.Node, m.node)
	return all, err
}

// A Service's address becomes one of the node's. It serves NodePorts then, and is unbound and no longer isolated once
// its connections have ended, although an operation on another virtual server fails.
func TestServiceAddressBecomesNodeAddress(t *testing.T) {
	b := newFixture(t)
	nodePorts, err := desired.ParseNodePortAddresses([]string{"203.0.113.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	b.world.services[0] = service{exists: true, nodePort: true, loadBalancer: true, pods: [4]podState{2: ready}}
	options := Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, NodePorts: nodePorts, Drain: limits, Now: func() time.Time { return b.now }}
	b.engine = New(b.kernel, b.world, options)
	b.mustReport(b.engine.Full(context.Background()))
	before, after := key(externIP(0).String(), 80), key(externIP(0).String(), nodePort(0, 80))
	b.kernel.SetConnections(before, pod0, 1, 0)
	b.engine.kernel = movedAddress{b.kernel, externIP(0)}
	b.mustReport(b.engine.Full(context.Background()))
	state := b.kernel.State()
	if !state.Bound(externIP(0)) || b.kernel.CutConnections() > 0 || len(serving(state, after)) != 1 {
		t.Errorf("with a connection: bound: %v, %d cut, the NodePort is served by %v", state.Bound(externIP(0)), b.kernel.CutConnections(), serving(state, after))
	}
	b.kernel.SetConnections(before, pod0, 0, 0)
	b.kernel.FailKey(vip)
	b.world.services[0].scheduler = 1
	b.engine.compute(name(0), &Report{})
	if r := b.drain(); len(r.Failures) == 0 {
		t.Error("nothing failed")
	}
	isolated := slices.ContainsFunc(state.Elements(), func(e kernel.Element) bool { return e.Set == kernel.Isolated && e.Key.Addr == externIP(0) })
	if state.Bound(externIP(0)) || isolated || len(serving(state, after)) != 1 {
		t.Errorf("without connections: bound: %v, isolated: %v, the NodePort is served by %v", state.Bound(externIP(0)), isolated, serving(state, after))
	}
}
