package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/plan"
)

// update verifies uncertain state and applies what is pending, without a full read of the kernel.
func (e *Engine) update(ctx context.Context, r *Report) error {
	unread := map[kernel.Key]bool{}
	err := e.verify(unread, r)
	if err == nil {
		err = e.detectForeign(unread, r)
	}
	if err != nil {
		r.Failures = append(r.Failures, err)
		return nil
	}
	return e.apply(ctx, unread, r)
}

// skipUnreadable excludes an unreadable virtual server from the pass. It returns the error if no reply came, since
// further calls would only time out too.
func (r *Report) skipUnreadable(k kernel.Key, unread map[kernel.Key]bool, err error) error {
	if errors.Is(err, kernel.ErrNoReply) {
		return err
	}
	unread[k] = true
	r.Failures = append(r.Failures, err)
	return nil
}

// apply plans and executes what is pending, without unreadable virtual servers. Failures stay pending and are read
// again before the next plan.
func (e *Engine) apply(ctx context.Context, unread map[kernel.Key]bool, r *Report) error {
	todo := e.pending
	todo.add(e.rejected)
	scope := plan.Scope{
		Keys:   slices.SortedFunc(maps.Keys(todo.keys), kernel.Key.Compare),
		Shared: slices.SortedFunc(maps.Keys(todo.shared), kernel.Element.Compare),
		Addrs:  slices.SortedFunc(maps.Keys(todo.addrs), netip.Addr.Compare),
	}
	e.pending, e.rejected = newPending(), newPending()
	e.passNumber++
	maps.Copy(e.pending.keys, unread)
	failed, err := e.execute(ctx, plan.Compute(scope, e, e.state), scope, unread, r)
	if err != nil {
		e.pending = todo
	} else {
		e.clearOutdatedRejections(failed)
	}
	e.trackDrains(scope.Keys, r)
	return err
}

// execution is the execution of one plan.
type execution struct {
	*Engine
	scope  plan.Scope
	failed map[kernel.Key]bool // virtual servers whose further operations are skipped
	own    map[kernel.Key]bool // virtual servers to create that exist as the proxier's own, if they exist
	report *Report

	setsFailing bool // a change of sets failed
}

// execute runs operations and returns the virtual servers with failures. Those in excluded count as failed from the
// start.
func (e *Engine) execute(ctx context.Context, ops []kernel.Op, scope plan.Scope, excluded map[kernel.Key]bool,
	r *Report) (failed map[kernel.Key]bool, err error) {
	x := execution{Engine: e, scope: scope, failed: map[kernel.Key]bool{}, own: e.ownIfExisting(ops), report: r}
	maps.Copy(x.failed, excluded)
	r.Changes = slices.Grow(r.Changes, realOps(ops))
	for len(ops) > 0 {
		if err := ctx.Err(); err != nil {
			return x.failed, err
		}
		n := x.batchSize(ops)
		x.runBatch(ops[:n])
		ops = ops[n:]
	}
	e.setsFailed = x.setsFailing
	return x.failed, nil
}

// ownIfExisting returns the virtual servers to create that belong to the proxier if they exist: those with a record from
// before these operations, and with Adopt all.
func (e *Engine) ownIfExisting(ops []kernel.Op) map[kernel.Key]bool {
	own := map[kernel.Key]bool{}
	for _, op := range ops {
		if o, adding := op.(kernel.AddVirtual); adding && (e.options.Adopt || e.isRecorded(o.Virtual.Key)) {
			own[o.Virtual.Key] = true
		}
	}
	return own
}

// batchSize returns how many of the next operations can be one batch.
func (x *execution) batchSize(ops []kernel.Op) int {
	n := 1
	if _, can := x.kernel.(kernel.Batcher); !can {
		return n
	}
	for n < min(len(ops), kernel.MaxBatch) && kernel.CanBatch(ops[0], ops[n]) {
		n++
	}
	return n
}

// runBatch runs operations of one kind, without those that earlier failures block.
func (x *execution) runBatch(ops []kernel.Op) {
	var left []kernel.Op
	for _, op := range ops {
		if op, is := x.filterOp(op); is {
			left = append(left, op)
		}
	}
	if len(left) == 1 {
		x.run(left[0])
	} else if len(left) > 1 {
		for i, err := range x.kernel.(kernel.Batcher).ApplyAll(left) {
			x.finishOp(left[i], err)
		}
	}
}

func (x *execution) run(op kernel.Op) { x.finishOp(op, x.kernel.Apply(op)) }

// finishOp processes the result of an operation. One bad element makes a whole change of sets fail; if sets failed in
// two passes in a row, the change is split in halves down to the bad elements. Without a reply it is not split, since
// further calls would time out too.
func (x *execution) finishOp(op kernel.Op, err error) {
	x.report.Operations++
	if err == nil {
		err = x.state.Apply(op)
	}
	sets, is := op.(kernel.ChangeSets)
	if x.isRejected(op, err) {
		x.setsFailing = x.setsFailing || is
		x.skipRejected(op)
		return
	}
	if err == nil {
		x.report.addRepair(op)
		x.recordSuccess(op)
		return
	}
	one, two := splitSets(sets)
	if is && x.setsFailed && !errors.Is(err, kernel.ErrNoReply) && len(one.Add)+len(one.Remove) > 0 && len(two.Add)+len(two.Remove) > 0 {
		x.run(one)
		x.run(two)
		return
	}
	x.report.addRepair(op)
	x.setsFailing = x.setsFailing || is
	x.recordFailure(op, err)
}

// splitSets splits a change of sets; all elements of one virtual server stay together.
func splitSets(o kernel.ChangeSets) (one, two kernel.ChangeSets) {
	var keys []kernel.Key
	for _, e := range slices.Concat(o.Add, o.Remove) {
		keys = append(keys, e.Key)
	}
	if len(keys) == 0 {
		return one, two
	}
	slices.SortFunc(keys, kernel.Key.Compare)
	keys = slices.Compact(keys)
	middle := keys[len(keys)/2]
	part := func(elements []kernel.Element, into1, into2 *[]kernel.Element) {
		for _, e := range elements {
			if e.Key.Compare(middle) < 0 {
				*into1 = append(*into1, e)
			} else {
				*into2 = append(*into2, e)
			}
		}
	}
	part(o.Add, &one.Add, &two.Add)
	part(o.Remove, &one.Remove, &two.Remove)
	return one, two
}

// addRepair records an operation of a full pass that no API change explains. Any API change explains operations on
// addresses and sets.
func (r *Report) addRepair(op kernel.Op) {
	k, one := kernel.KeyOf(op)
	if r.changed == nil || r.changed[k] || !one && len(r.changed) > 0 {
		return
	}
	r.Repairs = append(r.Repairs, op.String())
}

// filterOp removes from an operation what an earlier failure blocks, and reports whether anything remains. A virtual
// server whose new real servers failed keeps its old ones, and an address is bound only once it is isolated and has a
// virtual server.
func (x *execution) filterOp(op kernel.Op) (kernel.Op, bool) {
	if k, ok := kernel.KeyOf(op); ok {
		return op, !x.failed[k]
	}
	if o, sets := op.(kernel.ChangeSets); sets {
		o.Remove = slices.DeleteFunc(slices.Clone(o.Remove), func(el kernel.Element) bool {
			return el.Set == kernel.Isolated && x.state.Bound(el.Key.Addr) // the address could not be unbound
		})
		op = o
	}
	if o, bind := op.(kernel.Bind); bind {
		return op, len(x.state.KeysAt(o.Addr)) > 0 && x.state.Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: o.Addr}})
	}
	if len(x.failed) == 0 {
		return op, true
	}
	switch o := op.(type) {
	case kernel.Unbind:
		failed := func(k kernel.Key) bool { return x.failed[k] } // such a virtual server could not be deleted
		return op, !slices.ContainsFunc(x.state.KeysAt(o.Addr), failed)
	case kernel.ChangeSets:
		blocked := func(el kernel.Element) bool { return el.Set.PerServer() && x.failed[el.Key] }
		o.Add = slices.DeleteFunc(slices.Clone(o.Add), blocked)
		o.Remove = slices.DeleteFunc(slices.Clone(o.Remove), blocked)
		return o, len(o.Add)+len(o.Remove) > 0
	}
	return op, true
}

// recordFailure keeps the objects of a failed operation pending and marks them unverified.
func (x *execution) recordFailure(op kernel.Op, err error) {
	k, ok := kernel.KeyOf(op)
	if _, adding := op.(kernel.AddVirtual); adding && errors.Is(err, kernel.ErrExists) && !x.own[k] {
		// Staying pending removes the ownership record of these operations.
		x.foreign[k], x.failed[k], x.pending.keys[k] = true, true, true
		if v, ok := x.table.Get(k); ok {
			x.reportRefusal(foreignRefusal(v.Service, k), x.report)
		}
		return
	}
	x.report.Failures = append(x.report.Failures, fmt.Errorf("%v: %w", op, err))
	x.markStaleFlows(op) // the operation may have taken effect
	if _, update := op.(kernel.UpdateVirtual); update {
		x.unverified.elements = true // package linux may have left a Drop element for it
	}
	if ok {
		x.failed[k], x.unverified.keys[k], x.pending.keys[k] = true, true, true
		return
	}
	switch o := op.(type) {
	case kernel.Bind:
		x.recordAddrFailure(o.Addr)
	case kernel.Unbind:
		x.recordAddrFailure(o.Addr)
	case kernel.ChangeSets:
		x.unverified.elements = true
		for _, el := range slices.Concat(o.Add, o.Remove) {
			x.postpone(el, &x.pending)
		}
	}
}

// postpone defers an element to a later pass, together with what depends on it.
func (x *execution) postpone(el kernel.Element, to *pending) {
	to.addElement(el)
	switch {
	case el.Set.PerServer():
		x.failed[el.Key] = true
	case el.Set == kernel.Isolated:
		for _, k := range x.scope.KeysAt(el.Key.Addr) {
			to.keys[k] = true
		}
	}
}

func (x *execution) recordAddrFailure(a netip.Addr) {
	x.unverified.addrs = true
	x.pending.addrs[a] = true
	for _, k := range x.scope.KeysAt(a) {
		x.pending.keys[k] = true
	}
}

// realOps counts the operations on real servers. A start has tens of thousands, and each is a change in the report.
func realOps(ops []kernel.Op) (n int) {
	for _, op := range ops {
		switch op.(type) {
		case kernel.AddReal, kernel.SetWeight, kernel.DeleteReal:
			n++
		}
	}
	return n
}

// recordSuccess records changes of real servers.
func (x *execution) recordSuccess(op kernel.Op) {
	switch o := op.(type) {
	case kernel.AddReal:
		x.recordChange(o.Key, o.Real, Added)
	case kernel.SetWeight:
		if o.Weight == 0 {
			x.recordChange(o.Key, o.Real, Draining)
		} else {
			x.recordChange(o.Key, o.Real, Restored)
		}
	case kernel.DeleteReal:
		x.recordChange(o.Key, o.Real, Deleted)
	case kernel.DeleteVirtual:
		delete(x.owners, o.Key)
	}
	x.markStaleFlows(op)
}

func (x *execution) recordChange(k kernel.Key, real netip.AddrPort, what ChangeKind) {
	x.report.Changes = append(x.report.Changes, Change{Service: x.owners[k], Virtual: k, Real: real, Kind: what})
}

// trackDrains puts unwanted real servers of weight 0 on the drain list, with their API status, and removes wanted
// ones.
func (e *Engine) trackDrains(keys []kernel.Key, r *Report) {
	now := e.options.Now()
	for _, k := range keys {
		want, _ := e.Get(k)
		for _, real := range e.state.Reals(k) {
			entry := drain.Key{Virtual: k, Real: real.Addr}
			_, wanted := slices.BinarySearchFunc(want.Reals, real.Addr, netip.AddrPort.Compare)
			switch {
			case wanted:
				if e.drains.Cancel(entry) {
					r.Cancelled++
				}
			case real.Weight == 0: // a real server whose weight could not be lowered stays pending
				e.drains.Put(entry, drainStatus(want, real.Addr), now)
			}
		}
	}
	if e.drains.Len() == 0 {
		return
	}
	for _, entry := range e.drains.Entries() {
		if _, exists := e.state.Weight(entry.Virtual, entry.Real); !exists {
			e.drains.Finish(entry)
		}
	}
}

func drainStatus(v desired.Virtual, real netip.AddrPort) drain.Status {
	for _, l := range v.Draining {
		switch {
		case l.Addr != real:
		case l.Terminated:
			return drain.Terminated
		default:
			return drain.Serving
		}
	}
	return drain.Unlisted
}
