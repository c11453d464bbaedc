package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/scenarios/timeline"
)

// findPod returns the pod of a step: one that a step started, or WORKLOAD#N, the Nth oldest pod of the workload now.
func (w *World) findPod(ctx context.Context, name string) (*corev1.Pod, error) {
	of, nth, numbered := strings.Cut(name, "#")
	if !numbered {
		var pod corev1.Pod
		if err := w.Cluster.Get(ctx, name, w.namespace(), &pod); err != nil {
			return nil, fmt.Errorf("reading the pod %s: %w", name, err)
		}
		return &pod, nil
	}
	k, err := w.workload(of)
	if err != nil {
		return nil, err
	}
	pods, err := k.oldestFirst(ctx, w)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(nth)
	if err != nil || n < 1 || n > len(pods) {
		return nil, fmt.Errorf("there is no pod %s: %s has %d pods", name, of, len(pods))
	}
	return &pods[n-1], nil
}

// oldestFirst are the workload's pods, sorted by age and name, as a timeline numbers them.
func (k *workload) oldestFirst(ctx context.Context, w *World) ([]corev1.Pod, error) {
	pods, err := k.pods(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", k.name, err)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// earlierPod is the pod of the last step with this name, or the pod that has the name now.
func (w *World) earlierPod(ctx context.Context, name string) (*corev1.Pod, error) {
	if pod := w.state().pods[name]; pod != nil {
		return pod, nil
	}
	return w.findPod(ctx, name)
}

// SetGate opens or closes a pod's readiness gate.
func (w executor) SetGate(ctx context.Context, s timeline.Step, open bool) error {
	pod, err := w.findPod(ctx, s.Object)
	if err != nil {
		return err
	}
	if len(pod.Spec.ReadinessGates) == 0 {
		return fmt.Errorf("the pod %s has no readiness gate; `set gated=on` gives the measured pods one, and gated=on those of `workload deploy`", pod.Name)
	}
	w.state().pods[s.Object] = pod
	return w.setGate(ctx, pod.Name, open)
}

func (w executor) AwaitReadiness(ctx context.Context, s timeline.Step, want bool) error {
	pod, err := w.earlierPod(ctx, s.Object)
	if err != nil {
		return err
	}
	return w.readiness(ctx, pod, want, s.Duration("within", readinessWithin))
}

// StartPod creates a pod from a workload's template on a node, without a Deployment.
func (w executor) StartPod(ctx context.Context, s timeline.Step) error {
	k, err := w.workload(s.Get("workload"))
	if err != nil {
		return err
	}
	template := k.deployment(w.World).Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace, pod.Spec.NodeName, pod.Spec.Affinity = s.Object, w.namespace(), s.Get("node"), nil
	if err := w.Cluster.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating the pod %s: %w", pod.Name, err)
	}
	return nil
}

// EndPod deletes a pod: SIGTERM, and SIGKILL after its grace period; with kill at once.
func (w executor) EndPod(ctx context.Context, s timeline.Step, kill bool) error {
	pod, err := w.findPod(ctx, s.Object)
	if err != nil {
		return err
	}
	w.state().pods[s.Object] = pod
	options, grace := graceOf(s), s.Duration("grace", ownGrace)
	if kill {
		options, grace = []resources.DeleteOption{deletion(0)}, 0
	}
	w.noteEnds(grace, func(p corev1.Pod) bool { return p.UID == pod.UID })
	if err := w.Cluster.Delete(ctx, pod.DeepCopy(), options...); err != nil {
		return fmt.Errorf("deleting the pod %s: %w", pod.Name, err)
	}
	return nil
}

// graceOf is the grace period of a step; empty for the object's own.
func graceOf(s timeline.Step) []resources.DeleteOption {
	if s.Get("grace") == "" {
		return nil
	}
	return []resources.DeleteOption{deletion(int64(s.Duration("grace", 0).Seconds()))}
}

// AwaitGone waits until a pod no longer exists.
func (w executor) AwaitGone(ctx context.Context, s timeline.Step) error {
	pod := w.state().pods[s.Object]
	if pod == nil {
		return fmt.Errorf("nothing has ended the pod %s", s.Object)
	}
	return w.Until(ctx, "the pod "+pod.Name+" to be gone", s.Duration("within", w.podReplacementTime()), func(ctx context.Context) (bool, string, error) {
		var now corev1.Pod
		err := w.Cluster.Get(ctx, pod.Name, w.namespace(), &now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return true, "", nil
		}
		return false, "it is there", err
	})
}
