package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// readKernel replaces the known state by the kernel's and makes everything pending. It returns the virtual servers that
// it could not read.
//
// A virtual server belongs to the proxier if the kernel records so (an element of a recording set), if this process
// knows it, or if its family lost all records, as after `nft flush ruleset`, and ownership.isLikelyOwn holds. All
// others are foreign and never changed, unless Adopt takes them over.
func (e *Engine) readKernel(bound []netip.Addr, r *Report) (unread map[kernel.Key]bool, err error) {
	servers, err := e.kernel.Servers()
	if err != nil {
		return nil, fmt.Errorf("reading the virtual servers: %w", err)
	}
	elements, err := e.kernel.Elements()
	if err != nil {
		return nil, fmt.Errorf("reading the filter sets: %w", err)
	}
	state := kernel.NewState()
	state.SetAddresses(bound)
	state.SetElements(elements)
	owned := readOwnership(elements)
	unread = map[kernel.Key]bool{}
	if servers, err = e.addMissing(servers, owned, unread, r); err != nil {
		return nil, err
	}
	owned.noteServed(e, servers, state)
	wasForeign := e.foreign
	e.foreign = map[kernel.Key]bool{}
	slices.SortFunc(servers, func(a, b kernel.Server) int { return a.Key.Compare(b.Key) })
	for _, s := range servers {
		_, known := e.state.Virtual(s.Key)
		known = known || e.unverified.keys[s.Key] // an operation without a reply may have created it
		want, wanted := e.table.Get(s.Key)
		likely := wanted && !wasForeign[s.Key] && owned.isLikelyOwn(s, want, state)
		if owned.keys[s.Key] || known || likely || wanted && e.options.Adopt {
			state.Put(s)
			continue
		}
		if e.foreign[s.Key] = true; wanted {
			e.reportRefusal(foreignRefusal(want.Service, s.Key), r)
		}
	}
	e.state = state
	e.unverified = unverified{keys: maps.Clone(unread)}
	e.markAllPending()
	return unread, nil
}

// addMissing adds the proxier's own virtual servers that a list lacks although they exist. Linux continues a list by
// position: after a deletion, even in another network namespace, it skips one.
func (e *Engine) addMissing(servers []kernel.Server, owned ownership, unread map[kernel.Key]bool, r *Report) ([]kernel.Server, error) {
	for _, k := range e.missingKeys(servers, owned) {
		s, exists, err := e.kernel.Server(k)
		if err != nil {
			if err := r.skipUnreadable(k, unread, fmt.Errorf("reading virtual server %v, which the list lacks: %w", k, err)); err != nil {
				return nil, err
			}
			s, exists = e.assumeServer(k)
		}
		if exists {
			servers = append(servers, s)
		}
	}
	return servers, nil
}

// missingKeys returns the proxier's own virtual servers, as far as known, that a list lacks.
func (e *Engine) missingKeys(servers []kernel.Server, owned ownership) []kernel.Key {
	missing := maps.Clone(owned.keys)
	maps.Copy(missing, e.unverified.keys)
	for _, k := range e.state.Keys() {
		missing[k] = true
	}
	for _, s := range servers {
		delete(missing, s.Key)
	}
	return slices.SortedFunc(maps.Keys(missing), kernel.Key.Compare)
}

// assumeServer returns what to assume about an own virtual server that is unreadable: the last known state. One that no
// Service wants may drain, so it counts as existing, which keeps its address bound.
func (e *Engine) assumeServer(k kernel.Key) (s kernel.Server, exists bool) {
	v, known := e.state.Virtual(k)
	_, wanted := e.Get(k)
	v.Key = k
	return kernel.Server{Virtual: v, Reals: e.state.Reals(k)}, known || !wanted
}

// detectForeign checks whether another program has created a virtual server that the proxier is about to create. This
// precedes the ownership record: otherwise a process that dies after recording would leave the foreign server to the
// next one as its own.
func (e *Engine) detectForeign(unread map[kernel.Key]bool, r *Report) error {
	for _, k := range slices.SortedFunc(maps.Keys(e.pending.keys), kernel.Key.Compare) {
		want, wanted := e.Get(k)
		if _, ours := e.state.Virtual(k); ours || !wanted || e.isRecorded(k) || unread[k] {
			continue
		}
		s, exists, err := e.kernel.Server(k)
		if err != nil {
			if err := r.skipUnreadable(k, unread, fmt.Errorf("looking for virtual server %v before creating it: %w", k, err)); err != nil {
				return err
			}
			continue
		}
		switch {
		case exists && e.options.Adopt:
			e.state.Put(s)
		case exists:
			e.foreign[k] = true
			e.reportRefusal(foreignRefusal(want.Service, k), r)
		}
	}
	return nil
}

// isRecorded reports whether the kernel records that the proxier created a virtual server, or was about to.
func (e *Engine) isRecorded(k kernel.Key) bool {
	return slices.ContainsFunc(kernel.Sets(), func(set kernel.Set) bool {
		return set.RecordsOwnership() && e.state.Has(kernel.Element{Set: set, Key: k})
	})
}

func (e *Engine) markAllPending() {
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
		e.pending.addElement(el)
	}
}

// addElement adds the scope that decides about an element.
func (p *pending) addElement(el kernel.Element) {
	switch {
	case el.Set.Shared():
		p.shared[el] = true
	case el.Set == kernel.Isolated:
		p.addrs[el.Key.Addr] = true
	default:
		p.keys[el.Key] = true
	}
}

// Restore recreates missing elements, sets and rules. It reads nothing else and is fast, since connections are
// dropped meanwhile. Its operations are in the report as repairs.
func (e *Engine) Restore(ctx context.Context) (Report, error) {
	var r Report
	if !e.initialized {
		return r, errors.New("Restore called before Full: the kernel was not read yet")
	}
	r.changed = maps.Clone(e.pending.keys)
	e.unverified.elements = true
	return r, e.update(ctx, &r)
}

// updateAddresses replaces the known bound addresses and makes every difference pending: deleting the device removes
// all addresses at once.
func (e *Engine) updateAddresses(bound []netip.Addr) {
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

// verify reads the state that failed operations left uncertain. Unreadable virtual servers stay unverified.
func (e *Engine) verify(unread map[kernel.Key]bool, r *Report) error {
	for _, k := range slices.SortedFunc(maps.Keys(e.unverified.keys), kernel.Key.Compare) {
		s, exists, err := e.kernel.Server(k)
		if err != nil {
			if err := r.skipUnreadable(k, unread, fmt.Errorf("reading virtual server %v after a failure: %w", k, err)); err != nil {
				return err
			}
			continue
		}
		if e.state.Remove(k); exists {
			e.state.Put(s)
		}
		delete(e.unverified.keys, k)
	}
	if e.unverified.addrs {
		addrs, err := e.kernel.Addresses()
		if err != nil {
			return fmt.Errorf("reading the bound addresses after a failure: %w", err)
		}
		e.updateAddresses(addrs.Bound)
		e.unverified.addrs = false
	}
	if e.unverified.elements {
		elements, err := e.kernel.Elements()
		if err != nil {
			return fmt.Errorf("reading the filter sets after a failure: %w", err)
		}
		e.state.SetElements(elements)
		e.unverified.elements = false
		e.markAllPending()
	}
	return nil
}

// ownership is the ownership record that was read from the kernel. If a family has no records at all, its tables were
// deleted or the proxier never ran.
type ownership struct {
	keys           map[kernel.Key]bool
	hasRecords     map[bool]bool          // families with any record, by whether it is IPv6
	servedServices map[serviceFamily]bool // Services with a virtual server at an address that the proxier made local
}

// serviceFamily is one IP family of a Service.
type serviceFamily struct {
	service types.NamespacedName
	ipv6    bool
}

func readOwnership(elements []kernel.Element) ownership {
	r := ownership{map[kernel.Key]bool{}, map[bool]bool{}, map[serviceFamily]bool{}}
	for _, el := range elements {
		if el.Set.RecordsOwnership() {
			r.keys[el.Key], r.hasRecords[el.Key.Addr.Is6()] = true, true
		}
	}
	return r
}

// noteServed finds, for families without records, the Services with virtual servers at addresses that the
// proxier made local.
func (r ownership) noteServed(e *Engine, servers []kernel.Server, state *kernel.State) {
	for _, s := range servers {
		if r.hasRecords[s.Key.Addr.Is6()] {
			continue
		}
		if want, wanted := e.table.Get(s.Key); wanted && want.Binds() && state.Bound(s.Key.Addr) {
			r.servedServices[serviceFamily{want.Service, s.Key.Addr.Is6()}] = true
		}
	}
}

// isLikelyOwn reports whether an unrecorded virtual server belongs to the proxier although its family has no records.
// At an address that the proxier made local it does. At a NodePort address it does if the same Service also has one at
// such an address and the virtual server is exactly as the proxier creates it.
func (r ownership) isLikelyOwn(s kernel.Server, want desired.Virtual, state *kernel.State) bool {
	six := s.Key.Addr.Is6()
	if r.hasRecords[six] {
		return false
	}
	return state.Bound(s.Key.Addr) || !want.Binds() && r.servedServices[serviceFamily{want.Service, six}] && s.Virtual == want.Virtual
}
