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

// update applies what is pending to a kernel of which only a memory is at hand.
func (e *Engine) update(ctx context.Context, r *Report) error {
	unread := map[kernel.Key]bool{}
	err := e.reread(unread, r)
	if err == nil {
		err = e.meet(unread, r)
	}
	if err != nil {
		r.Failures = append(r.Failures, err)
		return nil
	}
	return e.apply(ctx, unread, r)
}

// unreadable leaves a virtual server that cannot be read out of a pass. Where no reply comes at all it returns the error: more of the
// same would only take longer.
func (r *Report) unreadable(k kernel.Key, unread map[kernel.Key]bool, err error) error {
	if errors.Is(err, kernel.ErrNoReply) {
		return err
	}
	unread[k] = true
	r.Failures = append(r.Failures, err)
	return nil
}

// apply plans what is pending and carries it out, less what is about virtual servers that could not be read. What fails stays
// pending, and is read again before the next plan.
func (e *Engine) apply(ctx context.Context, unread map[kernel.Key]bool, r *Report) error {
	todo := e.pending
	todo.add(e.again)
	scope := plan.Scope{
		Keys:   slices.SortedFunc(maps.Keys(todo.keys), kernel.Key.Compare),
		Shared: slices.SortedFunc(maps.Keys(todo.shared), kernel.Element.Compare),
		Addrs:  slices.SortedFunc(maps.Keys(todo.addrs), netip.Addr.Compare),
	}
	e.pending, e.again = newPending(), newPending()
	e.pass++
	maps.Copy(e.pending.keys, unread)
	failed, err := e.execute(ctx, plan.Compute(scope, e, e.state), scope, unread, r)
	if err != nil {
		e.pending = todo
	} else {
		e.forgiveAll(failed)
	}
	e.track(scope.Keys, r)
	return err
}

// execution is one pass over a plan.
type execution struct {
	*Engine
	scope  plan.Scope
	failed map[kernel.Key]bool // virtual servers that take no further part
	report *Report

	failing bool // a change of sets failed
}

// execute carries operations out, and returns the virtual servers of which one failed. Those that are spared count as such from the
// start.
func (e *Engine) execute(ctx context.Context, ops []kernel.Op, scope plan.Scope, spared map[kernel.Key]bool,
	r *Report) (failed map[kernel.Key]bool, err error) {
	x := execution{Engine: e, scope: scope, failed: map[kernel.Key]bool{}, report: r}
	maps.Copy(x.failed, spared)
	for len(ops) > 0 {
		if err := ctx.Err(); err != nil {
			return x.failed, err
		}
		n := x.alike(ops)
		x.doAll(ops[:n])
		ops = ops[n:]
	}
	e.setsFailed = x.failing
	return x.failed, nil
}

// alike returns how many of the next operations may go to the kernel at once.
func (x *execution) alike(ops []kernel.Op) int {
	n := 1
	if _, can := x.kernel.(kernel.Batcher); !can {
		return n
	}
	for n < min(len(ops), kernel.MaxBatch) && kernel.CanBatch(ops[0], ops[n]) {
		n++
	}
	return n
}

// doAll carries out operations that are alike, less those that must not happen any more.
func (x *execution) doAll(ops []kernel.Op) {
	var left []kernel.Op
	for _, op := range ops {
		if op, is := x.trim(op); is {
			left = append(left, op)
		}
	}
	if len(left) == 1 {
		x.do(left[0])
	} else if len(left) > 1 {
		for i, err := range x.kernel.(kernel.Batcher).ApplyAll(left) {
			x.done(left[i], err)
		}
	}
}

func (x *execution) do(op kernel.Op) { x.done(op, x.kernel.Apply(op)) }

// done notes what became of an operation. A change of sets is for all virtual servers of a pass, so that one bad element would
// keep all of them from being served; when it is refused twice in a row, it is tried in halves, down to the ones that it is
// refused for. Where no reply comes, more of the same would only take longer.
func (x *execution) done(op kernel.Op, err error) {
	x.report.Operations++
	if err == nil {
		err = x.state.Apply(op)
	}
	sets, is := op.(kernel.ChangeSets)
	if x.refuses(op, err) {
		x.failing = x.failing || is
		x.waive(op)
		return
	}
	if err == nil {
		x.report.repair(op)
		x.note(op)
		return
	}
	one, two := halves(sets)
	if is && x.setsFailed && !errors.Is(err, kernel.ErrNoReply) && len(one.Add)+len(one.Remove) > 0 && len(two.Add)+len(two.Remove) > 0 {
		x.do(one)
		x.do(two)
		return
	}
	x.report.repair(op)
	x.failing = x.failing || is
	x.fail(op, err)
}

// halves splits a change of sets; all elements of one virtual server stay together.
func halves(o kernel.ChangeSets) (one, two kernel.ChangeSets) {
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

// repair notes an operation of a full pass that no change in the API explains. Addresses and sets are explained by any.
func (r *Report) repair(op kernel.Op) {
	k, one := kernel.KeyOf(op)
	if r.changed == nil || r.changed[k] || !one && len(r.changed) > 0 {
		return
	}
	r.Repairs = append(r.Repairs, op.String())
}

// trim takes out of an operation what must not happen because an earlier one failed: a virtual server whose new real
// servers could not be added keeps its old ones, and an address is not bound before a virtual server is there and the
// programs of the host are shut out.
func (x *execution) trim(op kernel.Op) (kernel.Op, bool) {
	if k, ok := kernel.KeyOf(op); ok {
		return op, !x.failed[k]
	}
	if o, sets := op.(kernel.ChangeSets); sets {
		o.Remove = slices.DeleteFunc(slices.Clone(o.Remove), func(el kernel.Element) bool {
			return el.Set == kernel.Isolated && x.state.Bound(el.Key.Addr) // it could not be unbound
		})
		op = o
	}
	if o, bind := op.(kernel.Bind); bind {
		return op, x.state.ServersAt(o.Addr) > 0 && x.state.Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: o.Addr}})
	}
	if len(x.failed) == 0 {
		return op, true
	}
	switch o := op.(type) {
	case kernel.Unbind:
		return op, x.state.ServersAt(o.Addr) == 0
	case kernel.ChangeSets:
		spared := func(el kernel.Element) bool { return el.Set.PerServer() && x.failed[el.Key] }
		o.Add = slices.DeleteFunc(slices.Clone(o.Add), spared)
		o.Remove = slices.DeleteFunc(slices.Clone(o.Remove), spared)
		return o, len(o.Add)+len(o.Remove) > 0
	}
	return op, true
}

// fail keeps what an operation was about pending, and marks what has to be read again.
func (x *execution) fail(op kernel.Op, err error) {
	k, ok := kernel.KeyOf(op)
	if _, adding := op.(kernel.AddVirtual); adding && errors.Is(err, kernel.ErrExists) {
		// Ours would have been found when the kernel was read. Pending takes our record of it back.
		x.foreign[k], x.failed[k], x.pending.keys[k] = true, true, true
		if v, ok := x.table.Get(k); ok {
			x.refuse(foreignRefusal(v.Service, k), x.report)
		}
		return
	}
	x.report.Failures = append(x.report.Failures, fmt.Errorf("%v: %w", op, err))
	x.stain(op) // it may have taken effect
	if _, update := op.(kernel.UpdateVirtual); update {
		x.suspect.elements = true // the kernel may hold new connections back for it
	}
	if ok {
		x.failed[k], x.suspect.keys[k], x.pending.keys[k] = true, true, true
		return
	}
	switch o := op.(type) {
	case kernel.Bind:
		x.failAddr(o.Addr)
	case kernel.Unbind:
		x.failAddr(o.Addr)
	case kernel.ChangeSets:
		x.suspect.elements = true
		for _, el := range slices.Concat(o.Add, o.Remove) {
			x.postpone(el, &x.pending)
		}
	}
}

// postpone leaves an element to a later pass, with what must not happen before.
func (x *execution) postpone(el kernel.Element, to *pending) {
	to.element(el)
	switch {
	case el.Set.PerServer():
		x.failed[el.Key] = true
	case el.Set == kernel.Isolated:
		for _, k := range x.scope.KeysAt(el.Key.Addr) {
			to.keys[k] = true
		}
	}
}

func (x *execution) failAddr(a netip.Addr) {
	x.suspect.addrs = true
	x.pending.addrs[a] = true
	for _, k := range x.scope.KeysAt(a) {
		x.pending.keys[k] = true
	}
}

// note reports what became of real servers.
func (x *execution) note(op kernel.Op) {
	switch o := op.(type) {
	case kernel.AddReal:
		x.move(o.Key, o.Real, Added)
	case kernel.SetWeight:
		if o.Weight == 0 {
			x.move(o.Key, o.Real, Draining)
		} else {
			x.move(o.Key, o.Real, Restored)
		}
	case kernel.DeleteReal:
		x.move(o.Key, o.Real, Deleted)
	case kernel.DeleteVirtual:
		delete(x.names, o.Key)
	}
	x.stain(op)
}

func (x *execution) move(k kernel.Key, real netip.AddrPort, what What) {
	x.report.Moves = append(x.report.Moves, Move{Service: x.names[k], Virtual: k, Real: real, What: what})
}

// track puts every real server that is not wanted on the list of those that drain, with what the API says of it, and
// takes the wanted ones off.
func (e *Engine) track(keys []kernel.Key, r *Report) {
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
			case real.Weight == 0: // one whose weight could not be lowered is pending, and does not drain yet
				e.drains.Put(entry, status(want, real.Addr), now)
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

func status(v desired.Virtual, real netip.AddrPort) drain.Status {
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
