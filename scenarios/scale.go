package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// scale takes all pods of the Service away and brings others, as an autoscaler does that goes to zero: flows of UDP that were there
// before went on to pods that were gone (kubernetes#139628), or were lost when there were pods again (kubernetes#48370).
func scale() Scenario {
	return Scenario{
		Name:    "scale",
		Summary: "scales the Deployment to zero and back while traffic flows",
		Steps:   always(scaleSteps),
		Parameters: []Parameter{
			lanesParameter,
			{"away", "20s", "how long there is no pod", durationIn(0, time.Hour), nil, nil},
			{"replicas", "2", "pods of the Deployment, before and after", numberIn(1, 100), nil, nil},
			{"trafficPolicy", "Cluster", "externalTrafficPolicy of the Service: Local or Cluster", oneOf("Local", "Cluster"), nil, nil},
			{"shutdownDelay", "5s", "how long a backend goes on serving after SIGTERM", durationIn(0, time.Hour), nil, nil},
			{"gracePeriod", "10s", "terminationGracePeriodSeconds of the pods", durationIn(0, 24*time.Hour), nil, nil},
		},
		Run: func(ctx context.Context, w *World) error {
			return w.withoutPods(ctx, func(ctx context.Context) error { return w.Clock.Sleep(ctx, w.Params.duration("away")) })
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
		if err := w.act(ctx, "workload scale", w.run.main.name, "replicas", strconv.Itoa(replicas)); err != nil {
			return err
		}
		if err := w.see(ctx, "rolled-out", w.run.main.name, w.perPod()); err != nil {
			return err
		}
		return w.followed(ctx)
	})
}
