package prober

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/scenarios"
)

// ReplyDrops injects faults without the lab's load balancer: the client's kernel drops the replies to a lane, see
// probes.Engine.DropReplies.
type ReplyDrops struct{ *Prober }

// Inject drops the replies to the lane of the fault. It returns when the fault is over.
func (d ReplyDrops) Inject(ctx context.Context, f scenarios.FaultSpec) error {
	d.mu.Lock()
	id, runs := d.lanes[f.Lane]
	d.mu.Unlock()
	if f.Kind != "drop" || f.Node != "" || !runs {
		return fmt.Errorf("the fault %s (%s, node %q, lane %q): without the lab's load balancer, only replies to a running lane can be dropped", f.ID, f.Kind, f.Node, f.Lane)
	}
	from := d.cfg.Now() + lead
	until := from + f.For
	if err := d.send(func() error { return d.orders.DropReplies(id, from, until) }); err != nil {
		return err
	}
	// The next fault begins after the last attempt that this one can affect, see probes.Engine.DropReplies.
	if err := clock.Sleep(ctx, until+time.Second-d.cfg.Now()); err != nil {
		return err
	}
	for _, e := range probes.ReplyDropEvents(f.Lane, f.ID, from, until) {
		d.cfg.Record.Event(e)
	}
	return nil
}
