package scenarios

import (
	"context"
	"fmt"
	"strconv"
)

// scale takes all pods of the Service away and brings others, as an autoscaler does that goes to zero: flows of UDP that were there
// before went on to pods that were gone (kubernetes#139628), or were lost when there were pods again (kubernetes#48370).
func scale() Scenario {
	return Scenario{
		Name:    "scale",
		Summary: "scales the Deployment to zero and back while traffic flows",
		Steps:   always(scaleSteps),
		Parameters: []Parameter{
			laneParameters(),
			noService.withDefault("20s").withHelp("how long there is no pod"),
			Replicas.withDefault("2").withHelp("pods of the Deployment, before and after"),
			clusterPolicy,
			shutdownDelay.withDefault("5s"),
			GracePeriod.withDefault("10s"),
		},
		Run: func(ctx context.Context, w *World) error {
			return w.withoutPods(ctx, func(ctx context.Context) error { return w.Clock.Sleep(ctx, noService.Of(w.Params)) })
		},
	}
}

// withoutPods scales to zero before something is done, and back after it.
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

// scaleTo changes the number of pods, and waits until there are as many and the balancer has followed.
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
