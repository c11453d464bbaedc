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

// RejectionThreshold is the number of consecutive passes after which a rejected operation counts as permanently
// rejected instead of failed. A second try may meet another state; a third one follows a new read.
const RejectionThreshold = 3

// operand identifies an operation on a virtual server or address.
type operand struct {
	op   string
	real netip.AddrPort
}

// rejection is an operation that the kernel rejects.
type rejection struct {
	count    int    // consecutive rejections
	lastPass uint64 // pass of the last rejection
	services []types.NamespacedName
	detail   string
}

// permanent reports whether the threshold is reached.
func (r rejection) permanent() bool { return r.count >= RejectionThreshold }

// operandOf returns the key and the operand of an operation. It returns false for a change of sets that concerns
// several keys, where the rejected one is unknown. The key of an address has no port.
func operandOf(op kernel.Op) (kernel.Key, operand, bool) {
	s := operand{op: op.Name()}
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

// isRejected updates the rejections by the result of an operation, and reports whether the kernel rejects it
// permanently.
func (x *execution) isRejected(op kernel.Op, err error) bool {
	k, s, one := operandOf(op)
	if !one {
		return false
	}
	if !kernel.IsPermanent(op, err) {
		x.clearRejection(k, s)
		return false
	}
	if x.rejections[k] == nil {
		x.rejections[k] = map[operand]rejection{}
	}
	r := x.rejections[k][s]
	r.count, r.lastPass = r.count+1, x.passNumber
	if r.count == RejectionThreshold {
		r.services, r.detail = x.servicesOf(k), fmt.Sprintf("the kernel rejects %v: %v", op, err)
	}
	x.rejections[k][s] = r
	return r.permanent()
}

// servicesOf returns the Service of a key, or for a key without port all Services at the address.
func (x *execution) servicesOf(k kernel.Key) []types.NamespacedName {
	if k.Port != 0 {
		return []types.NamespacedName{x.owners[k]}
	}
	var all []types.NamespacedName
	for _, k := range x.scope.KeysAt(k.Addr) {
		all = append(all, x.owners[k])
	}
	slices.SortFunc(all, desired.CompareNames)
	return slices.Compact(all)
}

// skipRejected gives up a permanently rejected operation for this pass; each later pass retries it. A rejected real
// server blocks nothing else of its virtual server.
func (x *execution) skipRejected(op kernel.Op) {
	k, s, _ := operandOf(op)
	x.report.Rejected++
	for _, name := range x.rejections[k][s].services {
		x.reportRefusal(x.rejections[k][s].refusal(name), x.report)
	}
	if _, one := kernel.KeyOf(op); one {
		x.rejected.keys[k] = true
		_, adding := op.(kernel.AddReal)
		x.failed[k] = x.failed[k] || !adding
	}
	switch o := op.(type) {
	case kernel.UpdateVirtual:
		x.unverified.elements = true // package linux may have left a Drop element for it
	case kernel.Bind, kernel.Unbind:
		x.rejected.addrs[k.Addr] = true
		for _, k := range x.scope.KeysAt(k.Addr) {
			x.rejected.keys[k] = true
		}
	case kernel.ChangeSets:
		for _, el := range slices.Concat(o.Add, o.Remove) {
			x.postpone(el, &x.rejected)
		}
	}
}

// refusal returns the rejection as a refusal of a Service.
func (r rejection) refusal(name types.NamespacedName) desired.Refusal {
	return desired.Refusal{Service: name, Reason: desired.KernelRefused, Detail: r.detail}
}

// clearRejection removes a rejection, so that it is reported again if it recurs.
func (e *Engine) clearRejection(k kernel.Key, s operand) {
	r, is := e.rejections[k][s]
	if !is {
		return
	}
	for _, name := range r.services {
		delete(e.refused[name], r.refusal(name))
	}
	if delete(e.rejections[k], s); len(e.rejections[k]) == 0 {
		delete(e.rejections, k)
	}
}

// clearOutdatedRejections removes the rejections that the last pass did not attempt again.
func (e *Engine) clearOutdatedRejections(failed map[kernel.Key]bool) {
	for k, all := range e.rejections {
		for s, r := range all {
			if r.lastPass != e.passNumber && !failed[k] {
				e.clearRejection(k, s)
			}
		}
	}
}

// rejectionsOf returns the permanent rejections of a Service.
func (e *Engine) rejectionsOf(s desired.Service) []desired.Refusal {
	if len(e.rejections) == 0 {
		return nil
	}
	var list []desired.Refusal
	for i := range s.Virtuals {
		k := s.Virtuals[i].Key
		for _, k := range []kernel.Key{k, {Addr: k.Addr}} {
			for r := range maps.Values(e.rejections[k]) {
				if r.permanent() && slices.Contains(r.services, s.Name) {
					list = append(list, r.refusal(s.Name))
				}
			}
		}
	}
	return list
}

// HasRejected reports whether permanently rejected operations wait for another try.
func (e *Engine) HasRejected() bool { return e.rejected.notEmpty() }
