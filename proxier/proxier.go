// Package proxier is the bundled IPVS Service proxy, which drops no connection while something changes, and is usable
// on its own. It watches Services and EndpointSlices (package watch), computes the desired kernel state (desired),
// plans the operations (plan), executes them and drains real servers (engine) on a kernel (kernel, linux, fake), and
// answers health checks (health) and metrics (metrics).
//
// This package joins the parts in one loop and provides the command. Limitation: IPVS does not distinguish clients,
// so clients inside the cluster that use an external address of a Service with policy Local reach only endpoints of
// their own node.
package proxier

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/metrics"
)

// Source provides API objects and their changes; implemented by *watch.Watcher.
type Source interface {
	engine.Objects
	// Run starts the source and returns once all objects are known.
	Run(context.Context) error
	// Changed receives after a change since the last TakeChanged.
	Changed() <-chan struct{}
	// TakeChanged returns the Services that changed since the last call.
	TakeChanged() []types.NamespacedName
}

// HealthChecks serves the healthCheckNodePorts of Services; implemented by *health.Services.
type HealthChecks interface {
	// Set sets a Service's port and its number of ready local endpoints.
	Set(name types.NamespacedName, port uint16, local int)
	// Delete stops the server of a Service, if it exists.
	Delete(types.NamespacedName)
	// Open opens the ports that are not open yet. It may be retried after an error.
	Open() error
	// Close stops all servers.
	Close()
}

// Config holds the parts of a Proxier. All fields except OnStarted are required.
type Config struct {
	Source       Source
	Kernel       kernel.Kernel
	Engine       engine.Options
	Node         *health.Node
	HealthChecks HealthChecks
	Metrics      *metrics.Metrics
	Log          *slog.Logger
	Periods      Periods
	OnStarted    func() // called once, after the first full pass
}

// Periods are the intervals of the loop.
type Periods struct {
	MinSync   time.Duration // minimum time between the end of one pass over changes and the next; 0 for none
	Retry     time.Duration // maximum time until a retry after a failure; the first retry follows after a second
	Reconcile time.Duration // time between full passes; 0 for none after the first, unless something asks for one
	Look      time.Duration // time between two looks for a virtual server that another program has deleted; 0 for none
	Flows     time.Duration // delay of the deletion of stale conntrack entries, which batches changes
}

// Proxier synchronises one node's kernel with the API.
type Proxier struct {
	Config
	engine           *engine.Engine
	timers           timers
	damaged          <-chan struct{} // nil if the kernel does not detect damage
	lastDrain        time.Time       // time of the last drain pass
	healthCheckError string          // the logged error of health check ports; empty if all are open

	localEndpoints map[types.NamespacedName]int // what the healthCheckNodePorts report
	checkAll       bool                         // something failed or was rejected, so that any of them may change in the next pass
}

// timers wake the loop. Only running timers cause wake-ups; an idle proxier waits for the next look and reconciliation only.
type timers struct {
	sync, drain, flows, reconcile, look, restore timer

	retry   backoff // after failures
	refused backoff // after rejections by the kernel or used ports, which may last and are no failures of the proxier
}

// timer is a time.Timer that knows whether it is running.
type timer struct {
	*time.Timer
	running bool
}

func newTimer() timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return timer{Timer: t}
}

// start starts the timer unless it is running or d is 0.
func (t *timer) start(d time.Duration) {
	if !t.running && d > 0 {
		t.Reset(d)
		t.running = true
	}
}

func (t *timer) stop() {
	t.Stop()
	t.running = false
}

// backoff is a timer whose interval doubles from one second.
type backoff struct {
	timer
	interval time.Duration
}

// schedule starts the timer unless it is running. limit bounds the interval.
func (b *backoff) schedule(limit time.Duration) {
	if !b.running {
		b.interval = min(max(2*b.interval, time.Second), max(limit, time.Second))
		b.start(b.interval)
	}
}

// reset stops the timer and resets the interval.
func (b *backoff) reset() {
	b.stop()
	b.interval = 0
}

// New returns a proxier that has not started.
func New(c Config) *Proxier {
	p := &Proxier{Config: c, engine: engine.New(c.Metrics.WrapKernel(c.Kernel), c.Source, c.Engine), localEndpoints: map[types.NamespacedName]int{},
		timers: timers{newTimer(), newTimer(), newTimer(), newTimer(), newTimer(), newTimer(), backoff{timer: newTimer()}, backoff{timer: newTimer()}}}
	if k, notifies := c.Kernel.(kernel.DamageNotifier); notifies {
		p.damaged = k.Damaged()
	}
	return p
}

// Run runs until the context ends and leaves the kernel state in place, so the node continues to forward. It returns
// an error if it could not start because the API or the kernel was not readable.
func (p *Proxier) Run(ctx context.Context) error {
	defer p.HealthChecks.Close()
	if err := p.Source.Run(ctx); err != nil {
		return ignoreCanceled(ctx, err)
	}
	if err := p.syncAll(ctx); err != nil {
		return ignoreCanceled(ctx, err)
	}
	if p.OnStarted != nil {
		p.OnStarted()
	}
	p.timers.reconcile.start(p.Periods.Reconcile)
	p.timers.look.start(p.Periods.Look)
	for ctx.Err() == nil {
		p.step(ctx)
	}
	return nil
}

// ignoreCanceled returns nil if the context has ended, else err.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step waits for the next event and handles it.
func (p *Proxier) step(ctx context.Context) {
	changed := p.Source.Changed()
	if p.timers.sync.running {
		changed = nil // the last pass was less than MinSync ago; changes accumulate
	}
	damaged := p.damaged
	if p.timers.restore.running {
		damaged = nil
	}
	select {
	case <-ctx.Done():
	case <-damaged:
		p.restore(ctx)
		p.timers.restore.start(minRestoreInterval)
	case <-p.timers.restore.C:
		p.timers.restore.running = false
	case <-changed:
		p.syncChanges(ctx)
		p.timers.sync.start(p.Periods.MinSync)
	case <-p.timers.sync.C:
		p.timers.sync.running = false
	case <-p.timers.retry.C:
		p.timers.retry.running = false
		p.syncChanges(ctx)
	case <-p.timers.refused.C:
		p.timers.refused.running = false
		p.syncChanges(ctx)
	case <-p.timers.drain.C:
		p.timers.drain.running = false
		p.drain(ctx)
	case <-p.timers.flows.C:
		p.timers.flows.running = false
		p.forgetFlows(ctx)
	case <-p.timers.reconcile.C:
		p.timers.reconcile.running = false
		p.reconcile(ctx)
		p.timers.reconcile.start(p.Periods.Reconcile)
	case <-p.timers.look.C:
		p.timers.look.running = false
		p.look(ctx)
		p.timers.look.start(p.Periods.Look)
	}
}

// look runs a full pass if another program has deleted a virtual server. Usually it has emptied the IPVS table.
func (p *Proxier) look(ctx context.Context) {
	key, missing, err := p.engine.Look()
	if err != nil {
		p.Log.Warn("the kernel could not be checked for deleted virtual servers", "vip", key.String(), "error", err)
	}
	if !missing {
		return
	}
	p.Log.Warn("another program has deleted a virtual server; the whole kernel state is read", "vip", key.String())
	p.reconcile(ctx)
}

// reconcile runs a full pass while the proxier runs, and logs its failure.
func (p *Proxier) reconcile(ctx context.Context) {
	if err := p.syncAll(ctx); err != nil && ctx.Err() == nil {
		p.Log.Error("reconciliation failed", "error", err)
	}
}

// syncChanges runs a pass over changes and earlier failures.
func (p *Proxier) syncChanges(ctx context.Context) {
	names := p.Source.TakeChanged()
	begin := time.Now()
	report, err := p.engine.Sync(ctx, names)
	if err != nil && ctx.Err() == nil {
		p.Log.Error("synchronisation failed", "error", err)
	}
	p.finish(ctx, pass{"changes", names, report, err, time.Since(begin)})
}

// syncAll runs a full pass.
func (p *Proxier) syncAll(ctx context.Context) error {
	names := append(p.Source.TakeChanged(), p.Source.Names()...) // deleted Services are among the changed ones only
	begin := time.Now()
	report, err := p.engine.Full(ctx)
	p.finish(ctx, pass{"everything", names, report, err, time.Since(begin)})
	return err
}

// minRestoreInterval bounds the rate of repairs, in case another program keeps deleting the rules.
const minRestoreInterval = 100 * time.Millisecond

// restore runs a pass over the filter sets and rules after damage.
func (p *Proxier) restore(ctx context.Context) {
	begin := time.Now()
	report, err := p.engine.Restore(ctx)
	p.finish(ctx, pass{"damage", nil, report, err, time.Since(begin)})
}

// minDrainInterval bounds the rate of drain passes.
const minDrainInterval = time.Second

func (p *Proxier) drain(ctx context.Context) {
	begin := time.Now()
	p.lastDrain = p.Engine.Now()
	report, err := p.engine.Drain(ctx)
	p.finish(ctx, pass{"drains", nil, report, err, time.Since(begin)})
}

func (p *Proxier) forgetFlows(ctx context.Context) {
	report, err := p.engine.ForgetFlows(ctx)
	logLines(p.Log, slog.LevelError, "failed", len(report.Failures), func(i int) []any { return []any{"error", report.Failures[i]} })
	if err == nil && p.engine.StaleFlows() > 0 {
		p.timers.flows.start(max(p.Periods.Flows, p.Periods.Retry))
	}
}

// pass is one call of the engine.
type pass struct {
	scope    string
	names    []types.NamespacedName
	report   engine.Report
	err      error
	duration time.Duration
}

// finish logs and counts a pass and starts the timers of further passes.
func (p *Proxier) finish(ctx context.Context, done pass) {
	complete := done.err == nil && len(done.report.Failures) == 0 && !p.engine.Pending()
	p.report(done, complete)
	opened := p.updateHealthChecks(done.names)
	p.timers.drain.stop()
	if at, any := p.engine.NextDrain(); any {
		now := p.Engine.Now()
		p.timers.drain.start(max(at.Sub(now), p.lastDrain.Add(minDrainInterval).Sub(now), time.Millisecond))
	}
	if p.engine.StaleFlows() > 0 {
		p.timers.flows.start(p.Periods.Flows)
	}
	if ctx.Err() != nil {
		return
	}
	if complete {
		p.Node.Updated()
		p.timers.retry.reset()
	} else {
		p.timers.retry.schedule(p.Periods.Retry)
	}
	if opened && !p.engine.HasRejected() {
		p.timers.refused.reset()
	} else {
		p.timers.refused.schedule(p.Periods.Retry)
	}
}

// updateHealthChecks updates the healthCheckNodePorts of Services after their kernel state, and reports whether all
// are open. An error is logged only when it changes.
func (p *Proxier) updateHealthChecks(names []types.NamespacedName) (opened bool) {
	if p.checkAll {
		names = slices.AppendSeq(slices.Clone(names), maps.Keys(p.localEndpoints))
	}
	p.checkAll = p.engine.Pending() || p.engine.HasRejected()
	for _, name := range names {
		p.updateHealthCheck(name)
	}
	why := ""
	if err := p.HealthChecks.Open(); err != nil {
		why = err.Error()
	}
	if why != p.healthCheckError && why != "" {
		p.Log.Error("health checks", "error", why)
	}
	p.healthCheckError = why
	return why == ""
}

// updateHealthCheck updates the healthCheckNodePort of one Service. After a failure it counts no endpoint that it did not
// count before: the kernel may not serve it.
func (p *Proxier) updateHealthCheck(name types.NamespacedName) {
	c := p.engine.HealthCheck(name)
	if c == nil {
		p.HealthChecks.Delete(name)
		delete(p.localEndpoints, name)
		return
	}
	if c.Failing {
		c.Local = min(c.Local, p.localEndpoints[name])
	}
	p.localEndpoints[name] = c.Local
	p.HealthChecks.Set(name, c.Port, c.Local)
}

// maxLinesPerPass bounds the log lines of each kind in one pass, except for refusals: a rollout is logged endpoint by
// endpoint, a start with 40,000 is counted.
const maxLinesPerPass = 50

// report logs and counts a pass. A pass without operations is only counted.
func (p *Proxier) report(done pass, complete bool) {
	r := done.report
	if done.scope == "everything" || done.scope == "changes" {
		p.Metrics.ObservePass(done.scope == "everything", done.duration, complete, time.Now())
	}
	p.Metrics.SetSizes(p.engine.Size(), p.engine.Draining())
	p.Metrics.Repaired(len(r.Repairs))
	for _, m := range r.Changes {
		p.Metrics.RealServerChanged(string(m.Kind))
	}
	for _, refusal := range r.Refused {
		p.Metrics.Refused(string(refusal.Reason))
		// Every refusal is logged, since it is not repeated.
		p.Log.Warn("refused", "service", refusal.Service.String(), "reason", string(refusal.Reason), "detail", refusal.Detail)
	}
	logLines(p.Log, slog.LevelInfo, "endpoint", len(r.Changes), func(i int) []any {
		m := r.Changes[i]
		return []any{"service", m.Service.String(), "vip", m.Virtual.String(), "rs", m.Real.String(), "what", string(m.Kind)}
	})
	logLines(p.Log, slog.LevelWarn, "repaired", len(r.Repairs), func(i int) []any { return []any{"operation", r.Repairs[i]} })
	logLines(p.Log, slog.LevelError, "failed", len(r.Failures), func(i int) []any { return []any{"error", r.Failures[i]} })
	if r.Operations > r.Rejected || len(r.Failures) > 0 || done.scope == "everything" && !p.timers.reconcile.running {
		p.Log.Info("synced", "over", done.scope, "services", r.Services, "operations", r.Operations, "failures", len(r.Failures),
			"draining", p.engine.Draining(), "us", done.duration.Microseconds())
	}
}

// logLines logs up to maxLinesPerPass of n lines, and the number of the others.
func logLines(log *slog.Logger, level slog.Level, message string, n int, attrs func(int) []any) {
	for i := range min(n, maxLinesPerPass) {
		log.Log(context.Background(), level, message, attrs(i)...)
	}
	if n > maxLinesPerPass {
		log.Log(context.Background(), level, message+", and more", "count", n-maxLinesPerPass)
	}
}
