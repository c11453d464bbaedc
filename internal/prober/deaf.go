package prober

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/internal/clock"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/scenarios"
)

// Deaf puts known faults in where nothing between client and node is ours: what arrives for a lane's sockets is dropped by
// the client's own kernel, see probes.Engine.Deafen.
type Deaf struct{ *Prober }

// Inject drops what arrives for the lane that the fault is meant for.
func (d Deaf) Inject(ctx context.Context, f scenarios.FaultSpec) error {
	name := f.Attrs["lane"]
	d.mu.Lock()
	id, runs := d.lanes[name]
	d.mu.Unlock()
	if f.Kind != "drop" || f.Node != "" || !runs {
		return fmt.Errorf("the fault %s (%s, node %q, lane %q): only what arrives for a lane that runs can be dropped from here", f.ID, f.Kind, f.Node, name)
	}
	from := d.cfg.Now() + lead
	until := from + f.For
	if err := d.order(func() error { return d.orders.Deafen(id, from, until) }); err != nil {
		return err
	}
	// The next fault may be ordered only when this one can no longer meet an attempt, see probes.Engine.Deafen.
	if err := clock.Sleep(ctx, until+time.Second-d.cfg.Now()); err != nil {
		return err
	}
	for _, e := range probes.Injected(name, f.ID, from, until) {
		d.cfg.Record.Event(e)
	}
	return nil
}
