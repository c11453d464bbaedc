package scenarios

import (
	"context"
	"fmt"
	"strconv"
)

// scale scales the Deployment to zero and back, as an autoscaler does. UDP flows from before went to pods that were gone
// (kubernetes#139628), or were lost afterwards (kubernetes#48370).
func scale() Scenario {
	return Scenario{
		Name:    "scale",
		Summary: "scales the Deployment to zero and back while traffic flows",
		Steps:   always(scaleSteps),
		Parameters: []Parameter{
			laneParameters(),
			noService.withDefault("20s").withHelp("time without pods"),
			Replicas.withDefault("2").withHelp("pods of the Deployment, before and after"),
			clusterPolicy,
			shutdownDelay.withDefault("5s"),
			GracePeriod.withDefault("10s"),
		},
		Setup: func(p Params) Setup {
			return Setup{Lasts: noService.Of(p) + p.exitDelay() + startTime + 2*p.memberTime()}
		},
		Run: func(ctx context.Context, w *World) error {
			return w.withoutPods(ctx, func(ctx context.Context) error { return w.Clock.Sleep(ctx, noService.Of(w.Params)) })
		},
	}
}

// withoutPods calls do while the Deployment has no pods.
func (w *World) withoutPods(ctx context.Context, do func(context.Context) error) error {
	replicas := w.run.main.replicas
	if err := w.scaleTo(ctx, 0); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	return w.scaleTo(ctx, replicas)
}

// scaleTo changes the number of pods, and waits for the pods and the load balancer.
func (w *World) scaleTo(ctx context.Context, replicas int) error {
	return w.Step(ctx, fmt.Sprintf("scale to %d", replicas), "", func(ctx context.Context) error {
		if err := w.performVerb(ctx, "workload scale", w.run.main.name, "replicas", strconv.Itoa(replicas)); err != nil {
			return err
		}
		if err := w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime()); err != nil {
			return err
		}
		return w.awaitBalanced(ctx)
	})
}
