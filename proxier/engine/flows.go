package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/proxier/kernel"
)

// stain notes of which virtual servers conntrack may remember too much after an operation: packets that came before they
// were there, and flows of UDP and SCTP to real servers that are gone.
func (x *execution) stain(op kernel.Op) {
	switch o := op.(type) {
	case kernel.AddVirtual:
		x.stale[o.Virtual.Key] = true
	case kernel.Bind:
		for _, k := range x.scope.KeysAt(o.Addr) {
			x.stale[k] = true
		}
	case kernel.DeleteReal:
		if !o.Key.Protocol.Drains() {
			x.stale[o.Key] = true
		}
	case kernel.DeleteVirtual:
		if !o.Key.Protocol.Drains() {
			x.stale[o.Key] = true
		}
	}
}

// Stale returns of how many virtual servers conntrack may remember too much; while it is not 0, Forget has to be called.
func (e *Engine) Stale() int { return len(e.stale) }

// Forget makes conntrack forget what leads nowhere. It is apart from the passes over changes, since it walks through the
// kernel's whole table whatever it looks for; what it forgets is what IPVS itself does not: with expire_nodest_conn=1 a
// flow to a real server that is gone moves by itself, but not one that came before its virtual server.
func (e *Engine) Forget(ctx context.Context) (Report, error) {
	var r Report
	if err := ctx.Err(); err != nil || len(e.stale) == 0 {
		return r, err
	}
	var op kernel.ForgetFlows
	for _, k := range slices.SortedFunc(maps.Keys(e.stale), kernel.Key.Compare) {
		want, _ := e.Get(k)
		op.Filters = append(op.Filters, kernel.FlowFilter{Key: k, Keep: want.Reals})
	}
	r.Operations++
	if err := e.kernel.Apply(op); err != nil {
		r.Failures = append(r.Failures, fmt.Errorf("%v: %w", op, err))
		return r, nil
	}
	clear(e.stale)
	return r, nil
}
