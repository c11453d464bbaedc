package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hitless/hitless/record"
)

// Rollouts is how many times the Deployment is rolled.
var Rollouts = newNumber("rollouts", "2", "number of rollouts", 1, 10000)

// rollout rolls the Deployment. Services with externalTrafficPolicy: Local lost connections by that until Kubernetes
// 1.26 (kubernetes#85643, KEP-1669).
func rollout() Scenario {
	return Scenario{
		Name:       "rollout",
		Summary:    "rolls the Deployment behind the Service, pod by pod",
		Steps:      always(rollSteps),
		Parameters: []Parameter{Rollouts.Parameter, laneParameters()},
		Setup: func(p Params) Setup {
			return Setup{Lasts: time.Duration(Rollouts.Of(p)) * (p.rollTime(Replicas.Of(p)) + CheckInterval.Of(p))}
		},
		Run: func(ctx context.Context, w *World) error {
			for i := range Rollouts.Of(w.Params) {
				name := fmt.Sprintf("rollout %d", i+1)
				if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.rollAndFollow(ctx) }); err != nil {
					return err
				}
				// A pause of one health check interval, so that the next rollout begins without pending changes.
				if err := w.Clock.Sleep(ctx, CheckInterval.Of(w.Params)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// rollAndFollow replaces the pods and waits until the load balancer has followed.
func (w *World) rollAndFollow(ctx context.Context) error {
	if err := w.rollOut(ctx); err != nil {
		return err
	}
	if err := w.awaitBalanced(ctx); err != nil {
		return err
	}
	w.recordRolloutEnd()
	return nil
}

// awaitBalanced waits until the load balancer has the right nodes. Where its membership is unknown, it waits for the
// time of its health checks.
func (w *World) awaitBalanced(ctx context.Context) error {
	if !w.balancerKnown() {
		checks := CheckFall.Of(w.Params) + CheckRise.Of(w.Params)
		return w.Clock.Sleep(ctx, time.Duration(checks)*CheckInterval.Of(w.Params))
	}
	return w.await(ctx, "balanced", w.run.main.name, w.membershipTime())
}

// rollOut replaces the pods and waits until the old ones are gone.
func (w *World) rollOut(ctx context.Context) error {
	if err := w.performVerb(ctx, "workload rollout", w.run.main.name); err != nil {
		return err
	}
	return w.await(ctx, "rolled-out", w.run.main.name, time.Duration(w.run.main.replicas)*w.podReplacementTime())
}

// recordRolloutEnd records the end of the current rollout.
func (w *World) recordRolloutEnd() {
	w.recordRollout(record.RolloutEnd, w.state().rolling)
	w.state().rolling = 0
}

// membershipTime bounds the time until the load balancer has found a change.
func (w *World) membershipTime() time.Duration {
	return time.Duration(CheckFall.Of(w.Params)+CheckRise.Of(w.Params)+1)*CheckInterval.Of(w.Params) + time.Minute
}

// replacePods begins a rollout by a change of the pod template.
func (w *World) replacePods(ctx context.Context, k *workload, number int) error {
	if AntiAffinity.Of(w.Params) && k.replicas >= len(w.Nodes) {
		return fmt.Errorf("%d replicas that keep to different nodes on %d nodes: a new pod has nowhere to come before an old one goes; "+
			"give fewer replicas, more nodes, or --set antiAffinity=off", k.replicas, len(w.Nodes))
	}
	err := w.updateDeployment(ctx, k, func(d *appsv1.Deployment) {
		if d.Spec.Template.Annotations == nil {
			d.Spec.Template.Annotations = map[string]string{}
		}
		d.Spec.Template.Annotations["hitless/rollout"] = strconv.Itoa(number)
	})
	if err != nil {
		return fmt.Errorf("changing the pod template: %w", err)
	}
	if k == w.run.main {
		w.recordRollout(record.RolloutBegin, number)
	}
	return nil
}

// maxConflicts bounds the retries of a write after conflicts with other writers.
const maxConflicts = 10

// updateDeployment changes the workload's Deployment, and retries after conflicts.
func (w *World) updateDeployment(ctx context.Context, k *workload, change func(d *appsv1.Deployment)) error {
	for n := 1; ; n++ {
		var d appsv1.Deployment
		if err := w.Cluster.Get(ctx, k.name, w.namespace(), &d); err != nil {
			return fmt.Errorf("reading the Deployment: %w", err)
		}
		change(&d)
		if err := w.Cluster.Update(ctx, &d); !apierrors.IsConflict(err) || n == maxConflicts {
			return err
		}
	}
}

// podReplacementTime bounds the replacement of one pod: its grace period and one minute.
func (w *World) podReplacementTime() time.Duration {
	return GracePeriod.Of(w.Params) + PreStop.Of(w.Params) + time.Minute
}

func (w *World) recordRollout(state record.RolloutState, number int) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: w.run.main.name,
		Text: fmt.Sprintf("rollout %d of %s: %s", number, w.run.main.name, state),
		Body: record.Rollout{State: state, Generation: strconv.Itoa(number)}})
}
