package engine

import (
	"context"
	"fmt"

	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/plan"
)

// Drain checks the draining real servers that are due and deletes those without connections or past their limit. With
// the last one it also deletes an unwanted virtual server and its address.
func (e *Engine) Drain(ctx context.Context) (Report, error) {
	var r Report
	now := e.options.Now()
	entries := e.drains.Due(now)
	defer func(looked []drain.Entry) {
		for _, entry := range looked {
			e.drains.Checked(entry, now)
		}
	}(entries)
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Virtual == entries[0].Virtual {
			n++
		}
		if err := e.drainServer(ctx, entries[:n], &r); err != nil {
			return r, err
		}
		entries = entries[n:]
	}
	return r, e.update(ctx, &r)
}

// drainServer checks the entries of one virtual server, and makes it pending in any case.
func (e *Engine) drainServer(ctx context.Context, entries []drain.Entry, r *Report) error {
	k := entries[0].Virtual
	e.pending.keys[k] = true
	s, exists, err := e.kernel.Server(k)
	if err != nil {
		r.Failures = append(r.Failures, fmt.Errorf("reading virtual server %v: %w", k, err))
		return nil
	}
	if !exists {
		e.state.Remove(k)
		return nil
	}
	e.state.Put(s)
	for _, entry := range entries {
		if err := e.drainReal(ctx, entry, s, r); err != nil {
			return err
		}
	}
	return nil
}

// drainReal deletes one real server if it is drained. Desired state, weight and generation are checked in the call
// that deletes, so a real server that is wanted again is never deleted.
func (e *Engine) drainReal(ctx context.Context, entry drain.Entry, s kernel.Server, r *Report) error {
	want, _ := e.Get(entry.Virtual)
	for _, real := range s.Reals {
		if real.Addr != entry.Real {
			continue
		}
		for _, a := range want.Reals {
			if a == entry.Real {
				return nil // the plan raises its weight and cancels the entry
			}
		}
		idle := real.Active == 0 && real.Inactive == 0
		expired := e.drains.Expired(entry, e.options.Now())
		if real.Weight != 0 || !idle && !expired || !e.drains.Finish(entry) {
			return nil
		}
		op := kernel.DeleteReal{Key: entry.Virtual, Real: entry.Real}
		if _, err := e.execute(ctx, []kernel.Op{op}, plan.Scope{Keys: []kernel.Key{entry.Virtual}}, nil, r); err != nil {
			return err
		}
		if n := len(r.Changes); !idle && n > 0 && r.Changes[n-1].Real == entry.Real && r.Changes[n-1].Kind == Deleted {
			r.Changes[n-1].Kind = Expired
		}
		return nil
	}
	return nil
}
