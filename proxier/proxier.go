// Package proxier is a Kubernetes Service proxy on IPVS that drops nothing while something changes: the bundled proxier
// of hitless, usable on its own. It watches Services and EndpointSlices (package watch), computes what the kernel should
// hold (desired), plans the way there (plan), goes it step by step and watches real servers drain (engine), on a kernel
// (kernel, linux, fake), and tells load balancers about it (health, metrics).
//
// This package joins the parts in one loop and makes them a command. Clients inside the cluster that use an external
// address of a Service with policy Local get the endpoints of their own node only, since IPVS cannot tell clients apart.
package proxier

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/metrics"
)

// Source is where API objects and their changes come from; *watch.Watcher is one.
type Source interface {
	engine.Objects
	// Run starts it, and returns when all objects are known.
	Run(context.Context) error
	// Changed receives when something changed since the last Take.
	Changed() <-chan struct{}
	// Take returns the Services that changed since the last Take.
	Take() []types.NamespacedName
}

// Checks answer at the healthCheckNodePorts of Services; *health.Services is one.
type Checks interface {
	// Set tells a Service's port and its number of ready local endpoints.
	Set(name types.NamespacedName, port uint16, local int)
	// Delete stops the server of a Service, if it has one.
	Delete(types.NamespacedName)
	// Open opens the ports that are not open yet, or says why it could not.
	Open() error
	// Close stops all servers.
	Close()
}

// Config is what a Proxier is made of. All fields but Started must be set.
type Config struct {
	Source  Source
	Kernel  kernel.Kernel
	Engine  engine.Options
	Node    *health.Node
	Checks  Checks
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Periods Periods
	Started func() // is called once, after the first pass over everything
}

// Periods say when the loop does what by itself.
type Periods struct {
	MinSync   time.Duration // least time from the end of one pass over changes to the next; 0 for none
	Retry     time.Duration // most time until something that failed is tried again; it starts with a second
	Reconcile time.Duration // time between passes that read the whole kernel; 0 for none but the first
	Flows     time.Duration // time until conntrack is made to forget what leads nowhere; changes gather meanwhile
}

// Proxier keeps one node's kernel up to date.
type Proxier struct {
	Config
	engine   *engine.Engine
	clocks   clocks
	damaged  <-chan struct{} // nil when the kernel cannot tell
	looked   time.Time       // at what drains, the last time
	unopened string          // why health check ports are not open, as it was logged; empty when all are
}

// clocks wake the loop. A stopped one costs nothing: with nothing to do, only the next reconciliation is waited for.
type clocks struct {
	sync, drain, flows, reconcile, restore clock

	retry   backoff // of what failed
	refused backoff // of what others refuse, which is no failure of the proxier's and may last
}

// clock is a timer that knows whether it runs.
type clock struct {
	*time.Timer
	running bool
}

func newClock() clock {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return clock{Timer: t}
}

// start lets it run unless it runs already.
func (c *clock) start(d time.Duration) {
	if !c.running && d > 0 {
		c.Reset(d)
		c.running = true
	}
}

func (c *clock) stop() {
	c.Stop()
	c.running = false
}

// backoff is a clock that waits twice as long each time, beginning with a second.
type backoff struct {
	clock
	pause time.Duration
}

// again starts it unless it runs already.
func (b *backoff) again(most time.Duration) {
	if !b.running {
		b.pause = min(max(2*b.pause, time.Second), max(most, time.Second))
		b.start(b.pause)
	}
}

// over stops it, and the next time begins with a second.
func (b *backoff) over() {
	b.stop()
	b.pause = 0
}

// New returns a proxier that has not started.
func New(c Config) *Proxier {
	p := &Proxier{Config: c, engine: engine.New(c.Metrics.Kernel(c.Kernel), c.Source, c.Engine),
		clocks: clocks{newClock(), newClock(), newClock(), newClock(), newClock(), backoff{clock: newClock()}, backoff{clock: newClock()}}}
	if k, watched := c.Kernel.(kernel.DamageNotifier); watched {
		p.damaged = k.Damaged()
	}
	return p
}

// Run works until the context ends, and leaves the kernel as it is then: the node goes on forwarding. An error means that
// it could not start, since it could see neither the API nor the kernel.
func (p *Proxier) Run(ctx context.Context) error {
	defer p.Checks.Close()
	if err := p.Source.Run(ctx); err != nil {
		return ended(ctx, err)
	}
	if err := p.full(ctx); err != nil {
		return ended(ctx, err)
	}
	if p.Started != nil {
		p.Started()
	}
	p.clocks.reconcile.start(p.Periods.Reconcile)
	for ctx.Err() == nil {
		p.step(ctx)
	}
	return nil
}

// ended takes the end of the context for what it is, no failure.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step waits for the next thing to do, and does it.
func (p *Proxier) step(ctx context.Context) {
	changed := p.Source.Changed()
	if p.clocks.sync.running {
		changed = nil // the last pass was less than MinSync ago; changes gather meanwhile
	}
	damaged := p.damaged
	if p.clocks.restore.running {
		damaged = nil
	}
	select {
	case <-ctx.Done():
	case <-damaged:
		p.restore(ctx)
		p.clocks.restore.start(betweenRestores)
	case <-p.clocks.restore.C:
		p.clocks.restore.running = false
	case <-changed:
		p.sync(ctx)
		p.clocks.sync.start(p.Periods.MinSync)
	case <-p.clocks.sync.C:
		p.clocks.sync.running = false
	case <-p.clocks.retry.C:
		p.clocks.retry.running = false
		p.sync(ctx)
	case <-p.clocks.refused.C:
		p.clocks.refused.running = false
		p.sync(ctx)
	case <-p.clocks.drain.C:
		p.clocks.drain.running = false
		p.drain(ctx)
	case <-p.clocks.flows.C:
		p.clocks.flows.running = false
		p.forget(ctx)
	case <-p.clocks.reconcile.C:
		p.clocks.reconcile.running = false
		if err := p.full(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("reconciliation failed", "error", err)
		}
		p.clocks.reconcile.start(p.Periods.Reconcile)
	}
}

// sync is a pass over what changed, and over what failed before.
func (p *Proxier) sync(ctx context.Context) {
	names := p.Source.Take()
	begin := time.Now()
	report, err := p.engine.Sync(ctx, names)
	if err != nil && ctx.Err() == nil {
		p.Log.Error("synchronising failed", "error", err)
	}
	p.finish(ctx, pass{"changes", names, report, err, time.Since(begin)})
}

// full is a pass over everything.
func (p *Proxier) full(ctx context.Context) error {
	names := append(p.Source.Take(), p.Source.Names()...) // Services that are gone are among the taken ones only
	begin := time.Now()
	report, err := p.engine.Full(ctx)
	p.finish(ctx, pass{"everything", names, report, err, time.Since(begin)})
	return err
}

// betweenRestores is the least time between two of them, lest two programs that undo each other's rules do nothing else.
const betweenRestores = 100 * time.Millisecond

// restore is a pass over the filter sets and the rules that use them, after somebody took some away.
func (p *Proxier) restore(ctx context.Context) {
	begin := time.Now()
	report, err := p.engine.Restore(ctx)
	p.finish(ctx, pass{"damage", nil, report, err, time.Since(begin)})
}

// betweenLooks is the least time between two looks at what drains, whatever is due.
const betweenLooks = time.Second

func (p *Proxier) drain(ctx context.Context) {
	begin := time.Now()
	p.looked = p.Engine.Now()
	report, err := p.engine.Drain(ctx)
	p.finish(ctx, pass{"drains", nil, report, err, time.Since(begin)})
}

func (p *Proxier) forget(ctx context.Context) {
	report, err := p.engine.ForgetFlows(ctx)
	lines(p.Log, slog.LevelError, "failed", len(report.Failures), func(i int) []any { return []any{"error", report.Failures[i]} })
	if err == nil && p.engine.StaleFlows() > 0 {
		p.clocks.flows.start(max(p.Periods.Flows, p.Periods.Retry))
	}
}

// pass is one call of the engine.
type pass struct {
	over   string
	names  []types.NamespacedName
	report engine.Report
	err    error
	took   time.Duration
}

// finish tells everybody what a pass did, and sets the clocks for what it left undone.
func (p *Proxier) finish(ctx context.Context, done pass) {
	complete := done.err == nil && len(done.report.Failures) == 0 && !p.engine.Pending()
	p.tell(done, complete)
	opened := p.check(done.names)
	p.clocks.drain.stop()
	if at, any := p.engine.NextDrain(); any {
		now := p.Engine.Now()
		p.clocks.drain.start(max(at.Sub(now), p.looked.Add(betweenLooks).Sub(now), time.Millisecond))
	}
	if p.engine.StaleFlows() > 0 {
		p.clocks.flows.start(p.Periods.Flows)
	}
	if ctx.Err() != nil {
		return
	}
	if complete {
		p.Node.Updated()
		p.clocks.retry.over()
	} else {
		p.clocks.retry.again(p.Periods.Retry)
	}
	if opened && !p.engine.HasRejected() {
		p.clocks.refused.over()
	} else {
		p.clocks.refused.again(p.Periods.Retry)
	}
}

// check brings the healthCheckNodePorts of Services up to date, once the kernel is, and reports whether all of them are open. Why
// one is not is logged once, however often it is tried.
func (p *Proxier) check(names []types.NamespacedName) (opened bool) {
	for _, name := range names {
		if c := p.engine.HealthCheck(name); c != nil {
			p.Checks.Set(name, c.Port, c.Local)
		} else {
			p.Checks.Delete(name)
		}
	}
	why := ""
	if err := p.Checks.Open(); err != nil {
		why = err.Error()
	}
	if why != p.unopened && why != "" {
		p.Log.Error("health checks", "error", why)
	}
	p.unopened = why
	return why == ""
}
