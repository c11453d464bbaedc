package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hitless/hitless/proxier/kernel"
)

// markStaleFlows marks virtual servers that may have stale conntrack entries after an operation: from packets before
// the virtual server existed, or of UDP and SCTP flows to deleted real servers.
func (x *execution) markStaleFlows(op kernel.Op) {
	switch o := op.(type) {
	case kernel.AddVirtual:
		x.staleFlows[o.Virtual.Key] = true
	case kernel.Bind:
		for _, k := range x.scope.KeysAt(o.Addr) {
			x.staleFlows[k] = true
		}
	case kernel.DeleteReal:
		if !o.Key.Protocol.Drains() {
			x.staleFlows[o.Key] = true
		}
	case kernel.DeleteVirtual:
		if !o.Key.Protocol.Drains() {
			x.staleFlows[o.Key] = true
		}
	}
}

// StaleFlows returns the number of virtual servers that may have stale conntrack entries. If it is not 0, ForgetFlows
// must be called.
func (e *Engine) StaleFlows() int { return len(e.staleFlows) }

// ForgetFlows deletes stale conntrack entries. It is separate from Sync because each call makes the kernel walk its
// whole conntrack table. IPVS itself moves flows of deleted real servers (expire_nodest_conn=1), but not flows that
// are older than their virtual server.
func (e *Engine) ForgetFlows(ctx context.Context) (Report, error) {
	var r Report
	if err := ctx.Err(); err != nil || len(e.staleFlows) == 0 {
		return r, err
	}
	var op kernel.ForgetFlows
	for _, k := range slices.SortedFunc(maps.Keys(e.staleFlows), kernel.Key.Compare) {
		want, _ := e.Get(k)
		op.Filters = append(op.Filters, kernel.FlowFilter{Key: k, Keep: want.Reals})
	}
	r.Operations++
	if err := e.kernel.Apply(op); err != nil {
		r.Failures = append(r.Failures, fmt.Errorf("%v: %w", op, err))
		return r, nil
	}
	clear(e.staleFlows)
	return r, nil
}
