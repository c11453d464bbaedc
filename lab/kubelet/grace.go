package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// grace is the time that containers are given to end; it can become shorter, never longer.
type grace struct {
	over   context.Context // done when the time is up
	cancel context.CancelFunc

	mu    sync.Mutex
	end   time.Time
	timer *time.Timer
}

func newGrace(ctx context.Context, d time.Duration) *grace {
	over, cancel := context.WithCancel(ctx)
	return &grace{over: over, cancel: cancel, end: time.Now().Add(d), timer: time.AfterFunc(d, cancel)}
}

// shorten ends the grace d from now, if that is sooner.
func (g *grace) shorten(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := time.Now().Add(d); end.Before(g.end) {
		g.end = end
		g.timer.Reset(d)
	}
}

// left is how much of the grace is left.
func (g *grace) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.end)
}

// release ends the grace and its timer.
func (g *grace) release() {
	g.timer.Stop()
	g.cancel()
}

// deletionGrace is how long a pod that is deleted has: what the API server says, or what the pod asks for when it went
// without being told, and at least a second (calculateEffectiveGracePeriod in the kubelet's pod_workers.go).
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

// probeGrace is how long a container has whose liveness or startup probe failed: the probe's own time or the pod's.
func probeGrace(object *corev1.Pod, probe *corev1.Probe) time.Duration {
	if probe.TerminationGracePeriodSeconds != nil {
		return time.Duration(max(1, *probe.TerminationGracePeriodSeconds)) * time.Second
	}
	return deletionGrace(object)
}
