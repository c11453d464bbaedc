// Package plan computes the operations that bring a kernel from its current to the desired state, in an order in
// which no intermediate state drops traffic. It is a pure function and does not execute the operations.
//
// The order, over all virtual servers of a change: additions to sets, virtual servers, real servers and raised
// weights, address bindings; then weights of 0, deletions, unbinding of unused addresses, and removals from sets. So
// an address is never bound without its virtual server (the host itself would answer), a real server is drained only
// after its replacements were added, and at every moment the kernel records which virtual servers the proxier owns.
package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// Want is the desired state; implemented by *desired.Table.
type Want interface {
	Get(kernel.Key) (desired.Virtual, bool)
	HasShared(kernel.Element) bool
}

// Scope limits a plan. Everything outside it stays unchanged.
type Scope struct {
	Keys   []kernel.Key     // sorted
	Shared []kernel.Element // elements of shared sets
	Addrs  []netip.Addr     // bound addresses in addition to those of Keys
}

// KeysAt returns the virtual servers at an address. The search is binary, since a start binds about as many addresses
// as it has virtual servers.
func (s Scope) KeysAt(a netip.Addr) []kernel.Key {
	first, _ := slices.BinarySearchFunc(s.Keys, a, func(k kernel.Key, a netip.Addr) int { return k.Addr.Compare(a) })
	n := first
	for n < len(s.Keys) && s.Keys[n].Addr == a {
		n++
	}
	return s.Keys[first:n]
}

// Compute returns the operations that bring the scope from have to want. Unwanted real servers keep their connections
// at weight 0 and are deleted by package drain's caller; real servers of protocols that do not drain are deleted at
// once.
func Compute(scope Scope, want Want, have *kernel.State) []kernel.Op {
	p := planner{want: want, have: have, addrs: map[netip.Addr]bool{}, needsBinding: map[netip.Addr]bool{}, deleted: map[kernel.Key]bool{}}
	for _, k := range sortedKeys(scope.Keys) {
		p.planKey(k)
	}
	for _, e := range scope.Shared {
		p.setElement(e, want.HasShared(e))
	}
	for _, a := range scope.Addrs {
		p.addrs[a] = true
	}
	p.planAddresses()
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

	add, swap, remove                    []kernel.Element // swap is removed in the first operation, remove in the last
	virtuals, reals, binds               []kernel.Op
	drains, deleteReals, deletes, unbind []kernel.Op

	addrs        map[netip.Addr]bool // addresses in the scope
	needsBinding map[netip.Addr]bool // addresses that wanted virtual servers of the scope need bound
	deleted      map[kernel.Key]bool // virtual servers whose deletion is planned
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

func (p *planner) planKey(k kernel.Key) {
	want, wanted := p.want.Get(k)
	have, exists := p.have.Virtual(k)
	p.addrs[k.Addr] = true
	switch {
	case wanted && !exists:
		p.virtuals = append(p.virtuals, kernel.AddVirtual{Virtual: want.Virtual})
	case wanted && have != want.Virtual:
		p.virtuals = append(p.virtuals, kernel.UpdateVirtual{Virtual: want.Virtual})
	}
	if wanted && want.Binds() {
		p.needsBinding[k.Addr] = true
	}
	p.planReals(k, want.Reals)
	// An unwanted virtual server stays while a real server of it drains. Its elements stay too: they record that the
	// proxier owns it.
	gone := !wanted && (!exists || len(p.remainingReals(k)) == 0)
	if gone && exists {
		p.deletes = append(p.deletes, kernel.DeleteVirtual{Key: k})
		p.deleted[k] = true
	}
	if !wanted && !gone {
		p.restoreRecord(k)
		return
	}
	for _, set := range kernel.Sets() {
		if set.RecordsOwnership() {
			p.setElement(kernel.Element{Set: set, Key: k}, wanted && want.Source == set)
		}
	}
	p.setElement(kernel.Element{Set: kernel.Drop, Key: k}, wanted && want.Drop)
	p.planClients(k, want.Clients)
}

// planClients restricts a virtual server to its clients. Replaced ranges are removed in the operation that adds the
// new ones, since the kernel does not accept overlapping ranges. If the restriction ends, its ranges are removed
// last.
func (p *planner) planClients(k kernel.Key, want *desired.Clients) {
	p.setElement(kernel.Element{Set: kernel.Restricted, Key: k}, want != nil)
	allowed := func(from netip.Prefix) kernel.Element {
		return kernel.Element{Set: kernel.Allowed, Key: k, Source: from}
	}
	var wanted desired.Clients
	if want != nil {
		wanted = *want
	}
	for _, from := range wanted {
		p.setElement(allowed(from), true)
	}
	for _, from := range p.have.Sources(k) {
		switch {
		case want == nil:
			p.setElement(allowed(from), false)
		case !slices.Contains(wanted, from):
			p.swap = append(p.swap, allowed(from))
		}
	}
}

// restoreRecord restores the missing ownership record of a draining virtual server. It takes no new connections, so
// any recording set works.
func (p *planner) restoreRecord(k kernel.Key) {
	for _, set := range kernel.Sets() {
		if set.RecordsOwnership() && p.have.Has(kernel.Element{Set: set, Key: k}) {
			return
		}
	}
	p.add = append(p.add, kernel.Element{Set: kernel.FromNode, Key: k})
}

// planReals adds or raises the wanted real servers (sorted) and drains or deletes the others.
func (p *planner) planReals(k kernel.Key, want []netip.AddrPort) {
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

// remainingReals returns the real servers that keep an unwanted virtual server alive.
func (p *planner) remainingReals(k kernel.Key) []kernel.Real {
	if !k.Protocol.Drains() {
		return nil
	}
	return p.have.Reals(k)
}

func (p *planner) setElement(e kernel.Element, wanted bool) {
	switch has := p.have.Has(e); {
	case wanted && !has:
		p.add = append(p.add, e)
	case !wanted && has:
		p.remove = append(p.remove, e)
	}
}

func (p *planner) planAddresses() {
	for _, a := range slices.SortedFunc(maps.Keys(p.addrs), netip.Addr.Compare) {
		bound := p.have.Bound(a)
		used := p.needsBinding[a] || bound && p.staysUsed(a)
		switch {
		case used && !bound:
			p.binds = append(p.binds, kernel.Bind{Addr: a})
		case bound && !used:
			p.unbind = append(p.unbind, kernel.Unbind{Addr: a})
		}
		// No program of the host may answer at the address from before it is bound until it is unbound.
		p.setElement(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: a}}, used)
	}
}

// staysUsed reports whether any virtual server at a bound address needs it bound. NodePorts do not: the node itself may
// have got the address. A draining one may have been created for a virtual address.
func (p *planner) staysUsed(a netip.Addr) bool {
	return slices.ContainsFunc(p.have.KeysAt(a), func(k kernel.Key) bool {
		want, wanted := p.want.Get(k)
		return wanted && want.Binds() || !wanted && !p.deleted[k]
	})
}
