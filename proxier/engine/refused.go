package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// patience is how many passes in a row the kernel has to refuse an operation until that counts as refused, and not as failed: a
// second try may meet another state, and a third one has read again what the first two left.
const patience = 3

// subject is what an operation on a virtual server, or on an address, is about.
type subject struct {
	op   string
	real netip.AddrPort
}

// refusal is what is known of an operation that the kernel does not take.
type refusal struct {
	times  int    // in a row
	pass   uint64 // the last of them
	of     []types.NamespacedName
	detail string
}

// final reports whether it has been refused often enough.
func (r refusal) final() bool { return r.times >= patience }

// about returns what an operation is about; false for a change of sets for many, of which nobody knows which one was refused.
// That of an address has a key without a port.
func about(op kernel.Op) (kernel.Key, subject, bool) {
	s := subject{op: op.Name()}
	switch o := op.(type) {
	case kernel.AddReal:
		s.real = o.Real
	case kernel.SetWeight:
		s.real = o.Real
	case kernel.DeleteReal:
		s.real = o.Real
	case kernel.Bind:
		return kernel.Key{Addr: o.Addr}, s, true
	case kernel.Unbind:
		return kernel.Key{Addr: o.Addr}, s, true
	case kernel.ChangeSets:
		all := slices.Concat(o.Add, o.Remove)
		other := func(el kernel.Element) bool { return el.Key != all[0].Key || el.Set.Shared() }
		if len(all) == 0 || slices.ContainsFunc(all, other) {
			return kernel.Key{}, s, false
		}
		return all[0].Key, s, true
	}
	k, is := kernel.KeyOf(op)
	return k, s, is
}

// refuses notes what came of an operation, and reports whether the kernel refuses it for good.
func (x *execution) refuses(op kernel.Op, err error) bool {
	k, s, one := about(op)
	if !one {
		return false
	}
	if !kernel.IsPermanent(err) {
		x.forgive(k, s)
		return false
	}
	if x.refusing[k] == nil {
		x.refusing[k] = map[subject]refusal{}
	}
	r := x.refusing[k][s]
	r.times, r.pass = r.times+1, x.pass
	if r.times == patience {
		r.of, r.detail = x.users(k), fmt.Sprintf("the kernel does not take it: %v: %v", op, err)
	}
	x.refusing[k][s] = r
	return r.final()
}

// users returns the Services that a key is of, or for one of an address, those that have it.
func (x *execution) users(k kernel.Key) []types.NamespacedName {
	if k.Port != 0 {
		return []types.NamespacedName{x.names[k]}
	}
	var all []types.NamespacedName
	for _, k := range x.scope.KeysAt(k.Addr) {
		all = append(all, x.names[k])
	}
	slices.SortFunc(all, desired.CompareNames)
	return slices.Compact(all)
}

// waive gives up an operation that the kernel refuses for good, for this pass. It is tried again with each one, and keeps none from
// being complete. A real server that cannot be had keeps its virtual server from nothing else: the others come, and the old ones go.
func (x *execution) waive(op kernel.Op) {
	k, s, _ := about(op)
	x.report.Again++
	for _, name := range x.refusing[k][s].of {
		x.refuse(x.refusing[k][s].by(name), x.report)
	}
	if _, one := kernel.KeyOf(op); one {
		x.again.keys[k] = true
		_, adding := op.(kernel.AddReal)
		x.failed[k] = x.failed[k] || !adding
	}
	switch o := op.(type) {
	case kernel.UpdateVirtual:
		x.suspect.elements = true // the kernel may hold new connections back for it
	case kernel.Bind, kernel.Unbind:
		x.again.addrs[k.Addr] = true
		for _, k := range x.scope.KeysAt(k.Addr) {
			x.again.keys[k] = true
		}
	case kernel.ChangeSets:
		for _, el := range slices.Concat(o.Add, o.Remove) {
			x.postpone(el, &x.again)
		}
	}
}

// by is the refusal as one of a Service.
func (r refusal) by(name types.NamespacedName) desired.Refusal {
	return desired.Refusal{Service: name, Reason: desired.KernelRefused, Detail: r.detail}
}

// forgive forgets that the kernel refused something, so that it is told again if that ever comes back.
func (e *Engine) forgive(k kernel.Key, s subject) {
	r, is := e.refusing[k][s]
	if !is {
		return
	}
	for _, name := range r.of {
		delete(e.refused[name], r.by(name))
	}
	if delete(e.refusing[k], s); len(e.refusing[k]) == 0 {
		delete(e.refusing, k)
	}
}

// forgiveAll forgets what the last pass had no reason to try any more.
func (e *Engine) forgiveAll(failed map[kernel.Key]bool) {
	for k, all := range e.refusing {
		for s, r := range all {
			if r.pass != e.pass && !failed[k] {
				e.forgive(k, s)
			}
		}
	}
}

// kernelRefusals are those of a Service that the kernel keeps up.
func (e *Engine) kernelRefusals(s desired.Service) []desired.Refusal {
	if len(e.refusing) == 0 {
		return nil
	}
	var list []desired.Refusal
	for i := range s.Virtuals {
		k := s.Virtuals[i].Key
		for _, k := range []kernel.Key{k, {Addr: k.Addr}} {
			for r := range maps.Values(e.refusing[k]) {
				if r.final() && slices.Contains(r.of, s.Name) {
					list = append(list, r.by(s.Name))
				}
			}
		}
	}
	return list
}

// Waits reports whether the kernel refuses something for good, which should be tried again now and then.
func (e *Engine) Waits() bool { return e.again.any() }
