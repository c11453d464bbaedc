package proxier

import (
	"context"
	"log/slog"
	"time"
)

// linesPerPass bounds what one pass logs of each kind but refusals. Each endpoint of a rollout is seen; 40,000 at a start are counted.
const linesPerPass = 50

// tell logs and counts what a pass did. A pass that found nothing to do is counted only.
func (p *Proxier) tell(done pass, complete bool) {
	r := done.report
	if done.over == "everything" || done.over == "changes" {
		p.Metrics.Pass(done.over == "everything", done.took, complete, time.Now())
	}
	p.Metrics.Tables(p.engine.Size(), p.engine.Draining())
	p.Metrics.Repaired(len(r.Repairs))
	for _, m := range r.Changes {
		p.Metrics.Moved(string(m.Kind))
	}
	for _, refusal := range r.Refused {
		p.Metrics.Refused(string(refusal.Reason))
		// Each by name: it is never said again.
		p.Log.Warn("refused", "service", refusal.Service.String(), "reason", string(refusal.Reason), "detail", refusal.Detail)
	}
	lines(p.Log, slog.LevelInfo, "endpoint", len(r.Changes), func(i int) []any {
		m := r.Changes[i]
		return []any{"service", m.Service.String(), "vip", m.Virtual.String(), "rs", m.Real.String(), "what", string(m.Kind)}
	})
	lines(p.Log, slog.LevelWarn, "repaired", len(r.Repairs), func(i int) []any { return []any{"operation", r.Repairs[i]} })
	lines(p.Log, slog.LevelError, "failed", len(r.Failures), func(i int) []any { return []any{"error", r.Failures[i]} })
	if r.Operations > r.Rejected || len(r.Failures) > 0 || done.over == "everything" && !p.clocks.reconcile.running {
		p.Log.Info("synced", "over", done.over, "services", r.Services, "operations", r.Operations, "failures", len(r.Failures),
			"draining", p.engine.Draining(), "us", done.took.Microseconds())
	}
}

// lines logs n things, one line each, as far as there is room.
func lines(log *slog.Logger, level slog.Level, message string, n int, attrs func(int) []any) {
	for i := range min(n, linesPerPass) {
		log.Log(context.Background(), level, message, attrs(i)...)
	}
	if n > linesPerPass {
		log.Log(context.Background(), level, message+", and more", "count", n-linesPerPass)
	}
}
