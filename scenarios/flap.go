package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// The parameters of flap alone.
var (
	flaps           = newNumber("flaps", "1", "number of times that each pod becomes unready", 1, 10000)
	openConnections = newNumber("openConnections", "24", "connections that are open during the flaps; 0: none", 0, 10000)
	askEvery        = newDuration("askEvery", "2s", "time between two requests on each open connection", time.Millisecond, time.Hour)
	stayOpen        = newDuration("stayOpen", "5s", "time that the connections stay open after the last flap; at least askEvery, for one more request on each", 0, 24*time.Hour)
)

// flap makes pods unready and ready again while connections are open, and measures on afterwards. The graceful
// termination of kube-proxy's ipvs mode failed that way (kubernetes#71515, #71071, #117205).
func flap() Scenario {
	return Scenario{
		Name:    "flap",
		Summary: "makes each pod unready and ready again while connections are open, and continues to open new ones",
		Parameters: []Parameter{
			flaps.Parameter,
			unreadyFor.Parameter,
			openConnections.Parameter,
			askEvery.Parameter,
			stayOpen.Parameter,
			watchFor.withDefault("4m").withHelp("time of new connections after the open ones are closed"),
			Replicas.withDefault("2"),
			readinessPeriod.withDefault("10s").withHelp("time between two readiness probes of a pod; flaps do not depend on it"),
			clusterPolicy,
		},
		Steps: always(gateSteps, []string{"lane stop"}),
		Setup: func(p Params) Setup { return Setup{Gated: true, Lasts: p.flapTime()} },
		Lanes: func(w *World) []LaneSpec { return w.openConnections() },
		Run:   func(ctx context.Context, w *World) error { return w.flapAll(ctx) },
	}
}

// flapTime is about how long flap takes.
func (p Params) flapTime() time.Duration {
	all := time.Duration(flaps.Of(p)*Replicas.Of(p)) * 2 * unreadyFor.Of(p)
	if openConnections.Of(p) > 0 {
		all += max(stayOpen.Of(p), askEvery.Of(p))
	}
	return all + watchFor.Of(p)
}

// openConnections are the lanes of the open connections, one of each family. The scenario ends them before the watch, because effects
// after the last use of a connection are measured too.
func (w *World) openConnections() (specs []LaneSpec) {
	n := openConnections.Of(w.Params)
	if n == 0 {
		return nil
	}
	for _, f := range w.families() {
		l := w.mainLane(f, record.ProtocolLong)
		l.Connections, l.Partial = n, true
		l.Rate = float64(n) / askEvery.Of(w.Params).Seconds()
		specs = append(specs, l)
	}
	return specs
}

func (w *World) flapAll(ctx context.Context) error {
	pods, err := w.run.main.oldestFirst(ctx, w)
	if err != nil {
		return err
	}
	for i := range flaps.Of(w.Params) {
		for n, pod := range pods {
			ref := fmt.Sprintf("%s#%d", w.run.main.name, n+1)
			name := fmt.Sprintf("flap %d of %s", i+1, pod.Name)
			if err := w.Step(ctx, name, pod.Spec.NodeName, func(ctx context.Context) error { return w.flapPod(ctx, ref) }); err != nil {
				return err
			}
			if err := w.Clock.Sleep(ctx, unreadyFor.Of(w.Params)); err != nil {
				return err
			}
		}
	}
	if openConnections.Of(w.Params) > 0 {
		if err := w.Clock.Sleep(ctx, max(stayOpen.Of(w.Params), askEvery.Of(w.Params))); err != nil {
			return err
		}
		if err := w.Step(ctx, "close the open connections", "", func(ctx context.Context) error { return w.performVerb(ctx, "lane stop", record.ProtocolLong) }); err != nil {
			return err
		}
	}
	return w.Step(ctx, "watch", "", func(ctx context.Context) error { return w.Clock.Sleep(ctx, watchFor.Of(w.Params)) })
}

// readinessWithin bounds the time from a change of a gate to that of the pod's readiness.
const readinessWithin = 30 * time.Second

// flapPod closes the pod's gate and opens it again. It is an error when the pod does not follow, or was restarted.
func (w *World) flapPod(ctx context.Context, pod string) error {
	if err := w.performVerb(ctx, "pod unready", pod); err != nil {
		return err
	}
	if err := w.await(ctx, "unready", pod, readinessWithin); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, unreadyFor.Of(w.Params)); err != nil {
		return err
	}
	if err := w.performVerb(ctx, "pod ready", pod); err != nil {
		return err
	}
	return w.await(ctx, "ready", pod, readinessWithin)
}

// readiness waits until the pod is ready or unready. It checks often, because flaps are short.
func (w *World) readiness(ctx context.Context, pod *corev1.Pod, want bool, most time.Duration) error {
	what := fmt.Sprintf("the pod %s to have ready=%t", pod.Name, want)
	return w.until(ctx, what, 20*time.Millisecond, most, func(ctx context.Context) (bool, string, error) {
		var now corev1.Pod
		if err := w.Cluster.Get(ctx, pod.Name, w.namespace(), &now); err != nil {
			return false, "", err
		}
		if now.UID != pod.UID || restarts(&now) != restarts(pod) {
			return false, "", errPodReplaced
		}
		ready := podIsReady(now)
		return ready == want, "ready=" + strconv.FormatBool(ready), nil
	})
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// gate is the readiness gate of the pods that a scenario makes unready. It works through the API alone, and the pod goes
// on serving (KEP-580).
const gate = "hitless/gate"

// setGate opens or closes a pod's gate.
func (w *World) setGate(ctx context.Context, pod string, open bool) error {
	status := corev1.ConditionFalse
	if open {
		status = corev1.ConditionTrue
	}
	p := &corev1.Pod{}
	p.Name, p.Namespace = pod, w.namespace()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, gate, status)
	if err := w.Cluster.PatchStatus(ctx, p, k8s.Patch{PatchType: types.StrategicMergePatchType, Data: []byte(patch)}); err != nil {
		return fmt.Errorf("setting the readiness gate of %s: %w", pod, err)
	}
	return nil
}

// openGates opens the gates of the workload's new pods, as the owner of a gate does. Gates that a scenario has closed
// stay closed.
func (k *workload) openGates(ctx context.Context, w *World) error {
	if !k.gated {
		return nil
	}
	pods, err := k.pods(ctx, w)
	for i := 0; err == nil && i < len(pods); i++ {
		if !slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate }) {
			err = w.setGate(ctx, pods[i].Name, true)
		}
	}
	return err
}
