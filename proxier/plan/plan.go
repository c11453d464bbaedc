// Package plan turns the difference between what a kernel holds and what it should hold into operations, in an order in
// which no step opens a hole. It is a pure function; it neither runs the operations nor remembers them.
//
// The order, over all virtual servers of a change: record and filter elements, virtual servers, real servers and raised
// weights, addresses; only then weights of 0, then what is deleted, then addresses that nothing uses any more, and last
// the elements that are not needed. So an address is never bound without its virtual server (the host itself would
// answer), a real server leaves only after its successors have come, and at each moment the kernel says which virtual
// servers are ours.
package plan

import (
	"net/netip"
	"slices"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// Want is the desired state; *desired.Table is one.
type Want interface {
	Get(kernel.Key) (desired.Virtual, bool)
	Shares(kernel.Element) bool
}

// Scope says what a plan looks at; everything else is left as it is.
type Scope struct {
	Keys   []kernel.Key     // virtual servers, sorted
	Shared []kernel.Element // of shared sets
	Addrs  []netip.Addr     // bound addresses, beside those of Keys
}

// At returns the virtual servers at an address, without a look at all others: a start binds as many addresses as it has
// virtual servers.
func (s Scope) At(a netip.Addr) []kernel.Key {
	first, _ := slices.BinarySearchFunc(s.Keys, a, func(k kernel.Key, a netip.Addr) int { return k.Addr.Compare(a) })
	n := first
	for n < len(s.Keys) && s.Keys[n].Addr == a {
		n++
	}
	return s.Keys[first:n]
}

// Compute returns the operations that bring what is in scope from have to want. Real servers that should go keep their
// connections at weight 0; deleting them is for whoever watches them drain, except for protocols that do not drain.
func Compute(scope Scope, want Want, have *kernel.State) []kernel.Op {
	p := planner{want: want, have: have, addrs: map[netip.Addr]int{}, bind: map[netip.Addr]bool{}}
	for _, k := range sortedKeys(scope.Keys) {
		p.key(k)
	}
	for _, e := range scope.Shared {
		p.element(e, want.Shares(e))
	}
	for _, a := range scope.Addrs {
		p.addrs[a] += 0
	}
	p.addresses()
	return p.ops()
}

func sortedKeys(keys []kernel.Key) []kernel.Key {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, kernel.Key.Compare)
	return slices.Compact(keys)
}

// planner collects operations by phase.
type planner struct {
	want Want
	have *kernel.State

	add, swap, remove                    []kernel.Element // swap leaves with the first operation, remove with the last
	virtuals, reals, binds               []kernel.Op
	drains, deleteReals, deletes, unbind []kernel.Op

	addrs map[netip.Addr]int  // planned change of the number of virtual servers at an address
	bind  map[netip.Addr]bool // a virtual server is wanted at the address, which is not the node's by itself
}

func (p *planner) ops() []kernel.Op {
	var ops []kernel.Op
	if len(p.add)+len(p.swap) > 0 {
		ops = append(ops, kernel.ChangeSets{Add: sortedElements(p.add), Remove: sortedElements(p.swap)})
	}
	for _, phase := range [][]kernel.Op{p.virtuals, p.reals, p.binds, p.drains, p.deleteReals, p.deletes, p.unbind} {
		ops = append(ops, phase...)
	}
	if len(p.remove) > 0 {
		ops = append(ops, kernel.ChangeSets{Remove: sortedElements(p.remove)})
	}
	return ops
}

func sortedElements(e []kernel.Element) []kernel.Element {
	slices.SortFunc(e, kernel.Element.Compare)
	return e
}

func (p *planner) key(k kernel.Key) {
	want, wanted := p.want.Get(k)
	have, exists := p.have.Virtual(k)
	p.addrs[k.Addr] += 0
	switch {
	case wanted && !exists:
		p.virtuals = append(p.virtuals, kernel.AddVirtual{Virtual: want.Virtual})
		p.addrs[k.Addr]++
	case wanted && have != want.Virtual:
		p.virtuals = append(p.virtuals, kernel.UpdateVirtual{Virtual: want.Virtual})
	}
	if wanted && want.Binds() {
		p.bind[k.Addr] = true
	}
	p.realServers(k, want.Reals)
	// A virtual server that should go lives on while a real server of it drains, and so do its elements: they are the
	// record that it is ours.
	gone := !wanted && (!exists || len(p.left(k)) == 0)
	if gone && exists {
		p.deletes = append(p.deletes, kernel.DeleteVirtual{Key: k})
		p.addrs[k.Addr]--
	}
	if !wanted && !gone {
		p.record(k)
		return
	}
	for _, set := range kernel.Sets() {
		if set.Records() {
			p.element(kernel.Element{Set: set, Key: k}, wanted && want.Source == set)
		}
	}
	p.element(kernel.Element{Set: kernel.Drop, Key: k}, wanted && want.Drop)
	p.clients(k, want.Clients)
}

// clients restricts a virtual server to its clients. The old ranges make room for the new ones in one operation, since
// the kernel has no ranges that overlap; they go last where nothing is restricted any more.
func (p *planner) clients(k kernel.Key, want *desired.Clients) {
	p.element(kernel.Element{Set: kernel.Restricted, Key: k}, want != nil)
	allowed := func(from netip.Prefix) kernel.Element {
		return kernel.Element{Set: kernel.Allowed, Key: k, From: from}
	}
	var wanted desired.Clients
	if want != nil {
		wanted = *want
	}
	for _, from := range wanted {
		p.element(allowed(from), true)
	}
	for _, from := range p.have.Sources(k) {
		switch {
		case want == nil:
			p.element(allowed(from), false)
		case !slices.Contains(wanted, from):
			p.swap = append(p.swap, allowed(from))
		}
	}
}

// record restores a lost record of a virtual server that drains. It takes no new connections, so any set will do.
func (p *planner) record(k kernel.Key) {
	for _, set := range kernel.Sets() {
		if set.Records() && p.have.Has(kernel.Element{Set: set, Key: k}) {
			return
		}
	}
	p.add = append(p.add, kernel.Element{Set: kernel.FromNode, Key: k})
}

// realServers raises or adds what is wanted (sorted) and takes the rest out.
func (p *planner) realServers(k kernel.Key, want []netip.AddrPort) {
	for _, a := range want {
		weight, exists := p.have.Weight(k, a)
		switch {
		case !exists:
			p.reals = append(p.reals, kernel.AddReal{Key: k, Real: a, Weight: 1})
		case weight != 1:
			p.reals = append(p.reals, kernel.SetWeight{Key: k, Real: a, Weight: 1})
		}
	}
	for _, r := range p.have.Reals(k) {
		if _, keep := slices.BinarySearchFunc(want, r.Addr, netip.AddrPort.Compare); keep {
			continue
		}
		switch {
		case !k.Protocol.Drains():
			p.deleteReals = append(p.deleteReals, kernel.DeleteReal{Key: k, Real: r.Addr})
		case r.Weight != 0:
			p.drains = append(p.drains, kernel.SetWeight{Key: k, Real: r.Addr, Weight: 0})
		}
	}
}

// left returns the real servers that stay in a virtual server which is not wanted.
func (p *planner) left(k kernel.Key) []kernel.Real {
	if !k.Protocol.Drains() {
		return nil
	}
	return p.have.Reals(k)
}

func (p *planner) element(e kernel.Element, wanted bool) {
	switch has := p.have.Has(e); {
	case wanted && !has:
		p.add = append(p.add, e)
	case !wanted && has:
		p.remove = append(p.remove, e)
	}
}

func (p *planner) addresses() {
	addrs := make([]netip.Addr, 0, len(p.addrs))
	for a := range p.addrs {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range addrs {
		bound := p.have.Bound(a)
		used := p.have.Users(a)+p.addrs[a] > 0
		switch {
		case p.bind[a] && !bound:
			p.binds = append(p.binds, kernel.Bind{Addr: a})
		case bound && !used:
			p.unbind = append(p.unbind, kernel.Unbind{Addr: a})
		}
		// Before it is bound, and until it is not any more, no program of the host answers there.
		p.element(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: a}}, p.bind[a] || bound && used)
	}
}
