package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hitless/hitless/proxier/kernel"
)

// read replaces what is remembered of the kernel by what it says, and makes everything pending.
//
// Ours is a virtual server that is on record in the kernel (an element of a recording set), or that this process knows.
// Where the whole record of its family is lost, as after `nft flush ruleset`, it is also one that a Service wants and an earlier
// process is likely to have made (record.likely), unless this process knows better. All others are left alone, for good, unless
// Adopt says that they are taken over from another proxy.
func (e *Engine) read(bound []netip.Addr, r *Report) error {
	servers, err := e.kernel.Servers()
	if err != nil {
		return fmt.Errorf("reading the virtual servers: %w", err)
	}
	elements, err := e.kernel.Elements()
	if err != nil {
		return fmt.Errorf("reading the filter sets: %w", err)
	}
	state := kernel.NewState()
	state.SetAddresses(bound)
	state.SetElements(elements)
	record := recordOf(elements)
	record.serve(e, servers, state)
	theirs := e.foreign
	e.foreign = map[kernel.Key]bool{}
	slices.SortFunc(servers, func(a, b kernel.Server) int { return a.Key.Compare(b.Key) })
	for _, s := range servers {
		_, known := e.state.Virtual(s.Key)
		known = known || e.suspect.keys[s.Key] // an operation of ours may have made it, though its reply was lost
		want, wanted := e.table.Get(s.Key)
		likely := wanted && !theirs[s.Key] && record.likely(s, want, state)
		if record.on[s.Key] || known || likely || wanted && e.options.Adopt {
			state.Put(s)
			continue
		}
		if e.foreign[s.Key] = true; wanted {
			e.refuse(foreignRefusal(want.Service, s.Key), r)
		}
	}
	e.state = state
	e.suspect = suspect{keys: map[kernel.Key]bool{}}
	e.pendAll()
	return nil
}

// meet looks whether somebody else has a virtual server meanwhile where one of ours is about to be. It has to be known before
// ours is put on record: a process that died between record and creation would leave theirs to the next one as its own.
func (e *Engine) meet(unread map[kernel.Key]bool, r *Report) error {
	for _, k := range slices.SortedFunc(maps.Keys(e.pending.keys), kernel.Key.Compare) {
		want, wanted := e.Get(k)
		if _, ours := e.state.Virtual(k); ours || !wanted || e.recorded(k) || unread[k] {
			continue
		}
		_, exists, err := e.kernel.Server(k)
		if err != nil {
			if err := r.unreadable(k, unread, fmt.Errorf("looking for virtual server %v before creating it: %w", k, err)); err != nil {
				return err
			}
			continue
		}
		if exists {
			e.foreign[k] = true
			e.refuse(foreignRefusal(want.Service, k), r)
		}
	}
	return nil
}

// recorded reports whether the kernel has it on record that the proxier made a virtual server, or was about to.
func (e *Engine) recorded(k kernel.Key) bool {
	return slices.ContainsFunc(kernel.Sets(), func(set kernel.Set) bool {
		return set.RecordsOwnership() && e.state.Has(kernel.Element{Set: set, Key: k})
	})
}

func (e *Engine) pendAll() {
	for _, k := range slices.Concat(e.table.Keys(), e.state.Keys()) {
		e.pending.keys[k] = true
	}
	for _, a := range slices.Concat(e.state.Addresses()) {
		e.pending.addrs[a] = true
	}
	for _, el := range e.table.Shared() {
		e.pending.shared[el] = true
	}
	for _, el := range e.state.Elements() {
		e.pending.element(el)
	}
}

// element makes an element pending, by what says whether it is wanted.
func (p *pending) element(el kernel.Element) {
	switch {
	case el.Set.Shared():
		p.shared[el] = true
	case el.Set == kernel.Isolated:
		p.addrs[el.Key.Addr] = true
	default:
		p.keys[el.Key] = true
	}
}

// Restore puts back what somebody took out of the filter sets, and makes the rules again that use them. It reads nothing else, so
// that it takes a moment only: while they are missing, connections are lost. What it had to do is in the report as repairs.
func (e *Engine) Restore(ctx context.Context) (Report, error) {
	var r Report
	if !e.adopted {
		return r, errors.New("restoring before the kernel was read: call Full first")
	}
	r.changed = maps.Clone(e.pending.keys)
	e.suspect.elements = true
	return r, e.update(ctx, &r)
}

// setAddresses replaces what is remembered of the bound addresses. Where it was wrong, what is wanted there is pending: somebody who
// deletes the device takes all of them.
func (e *Engine) setAddresses(bound []netip.Addr) {
	before := e.state.Addresses()
	e.state.SetAddresses(bound)
	wrong := map[netip.Addr]bool{}
	for _, a := range slices.Concat(before, bound) {
		_, known := slices.BinarySearchFunc(before, a, netip.Addr.Compare)
		wrong[a] = !known || !e.state.Bound(a)
	}
	for _, k := range slices.Concat(e.table.Keys(), e.state.Keys()) {
		if wrong[k.Addr] {
			e.pending.keys[k] = true
		}
	}
	for a, is := range wrong {
		if is {
			e.pending.addrs[a] = true
		}
	}
}

// reread reads again what failed operations left in doubt. A virtual server that cannot be read stays in doubt.
func (e *Engine) reread(unread map[kernel.Key]bool, r *Report) error {
	for _, k := range slices.SortedFunc(maps.Keys(e.suspect.keys), kernel.Key.Compare) {
		s, exists, err := e.kernel.Server(k)
		if err != nil {
			if err := r.unreadable(k, unread, fmt.Errorf("reading virtual server %v after a failure: %w", k, err)); err != nil {
				return err
			}
			continue
		}
		if e.state.Remove(k); exists {
			e.state.Put(s)
		}
		delete(e.suspect.keys, k)
	}
	if e.suspect.addrs {
		addrs, err := e.kernel.Addresses()
		if err != nil {
			return fmt.Errorf("reading the bound addresses after a failure: %w", err)
		}
		e.setAddresses(addrs.Bound)
		e.suspect.addrs = false
	}
	if e.suspect.elements {
		elements, err := e.kernel.Elements()
		if err != nil {
			return fmt.Errorf("reading the filter sets after a failure: %w", err)
		}
		e.state.SetElements(elements)
		e.suspect.elements = false
		e.pendAll()
	}
	return nil
}
