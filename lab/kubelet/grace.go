package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// grace is a termination grace period; it can be shortened but not extended.
type grace struct {
	expired context.Context // done when the period has expired
	cancel  context.CancelFunc

	mu    sync.Mutex
	end   time.Time
	timer *time.Timer
}

func newGrace(ctx context.Context, d time.Duration) *grace {
	expired, cancel := context.WithCancel(ctx)
	return &grace{expired: expired, cancel: cancel, end: time.Now().Add(d), timer: time.AfterFunc(d, cancel)}
}

// shorten ends the period d from now, if that is earlier.
func (g *grace) shorten(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := time.Now().Add(d); end.Before(g.end) {
		g.end = end
		g.timer.Reset(d)
	}
}

// left returns the rest of the period.
func (g *grace) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.end)
}

// release ends the period and its timer.
func (g *grace) release() {
	g.timer.Stop()
	g.cancel()
}

// deletionGrace returns the grace period of a deleted pod: from the API server, or from the spec if the pod vanished,
// at least 1 s (calculateEffectiveGracePeriod in the kubelet's pod_workers.go).
func deletionGrace(object *corev1.Pod) time.Duration {
	var seconds int64 = corev1.DefaultTerminationGracePeriodSeconds
	switch {
	case object.DeletionGracePeriodSeconds != nil:
		seconds = *object.DeletionGracePeriodSeconds
	case object.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *object.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(max(1, seconds)) * time.Second
}

// probeGrace returns the grace period after a failed liveness or startup probe: of the probe, else of the pod.
func probeGrace(object *corev1.Pod, probe *corev1.Probe) time.Duration {
	if probe.TerminationGracePeriodSeconds != nil {
		return time.Duration(max(1, *probe.TerminationGracePeriodSeconds)) * time.Second
	}
	return deletionGrace(object)
}
