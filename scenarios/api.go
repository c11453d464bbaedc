package scenarios

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/scenarios/timeline"
)

// The parameters of api alone.
var (
	apiAwayFor = newDuration("away", "5m", "time without the API server; 0s: none", 0, 24*time.Hour)
	relists    = newNumber("relists", "3", "number of times that the watches end and expire", 0, 1000)
	watchDelay = newDuration("delay", "0s", "delay of the watch events of the first node's proxy while the Deployment is rolled once more; 0s: no such rollout", 0, time.Hour)
)

// api makes the API server unavailable to the proxies and ends their watches. Programmed rules must go on serving, and
// later changes must arrive.
func api() Scenario {
	return Scenario{
		Name:    "api",
		Summary: "cuts the proxies off from the API server, ends and expires their watches, and rolls the Deployment after each",
		Steps:   always([]string{"api away", "api back", "api expire", "api delay", "expect watching"}, rollSteps),
		Parameters: []Parameter{
			apiAwayFor.Parameter,
			relists.Parameter,
			watchDelay.Parameter,
			laneParameters(),
			Replicas.withDefault("2").withHelp("pods of the Deployment; fewer than nodes, because a rollout needs a free node for the new pod"),
		},
		Setup: func(p Params) Setup { return Setup{Lasts: p.apiTime()} },
		Run: func(ctx context.Context, w *World) error {
			if away := apiAwayFor.Of(w.Params); away > 0 {
				name := fmt.Sprintf("keep the proxies from the API server for %s", away)
				if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.apiAway(ctx, away) }); err != nil {
					return err
				}
				if err := w.Step(ctx, "roll after the API server came back", "", func(ctx context.Context) error { return w.rollAndFollow(ctx) }); err != nil {
					return err
				}
			}
			for i := range relists.Of(w.Params) {
				name := fmt.Sprintf("end and expire the watches %d", i+1)
				if err := w.Step(ctx, name, "", w.relist); err != nil {
					return err
				}
				name = fmt.Sprintf("roll after the watches ended %d", i+1)
				if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.rollAndFollow(ctx) }); err != nil {
					return err
				}
			}
			if delay := watchDelay.Of(w.Params); delay > 0 {
				name := fmt.Sprintf("roll while what the proxy of %s watches is %s late", w.Nodes[0], delay)
				return w.Step(ctx, name, w.Nodes[0], func(ctx context.Context) error { return w.rollLate(ctx, w.Nodes[0], delay) })
			}
			return nil
		},
	}
}

// apiTime is about how long api takes: a rollout follows each disturbance.
func (p Params) apiTime() time.Duration {
	rollouts := relists.Of(p)
	for _, disturbs := range []bool{apiAwayFor.Of(p) > 0, watchDelay.Of(p) > 0} {
		if disturbs {
			rollouts++
		}
	}
	return apiAwayFor.Of(p) + watchDelay.Of(p) + time.Duration(rollouts)*p.rollTime(Replicas.Of(p))
}

// rollLate rolls the Deployment while the watches of one node's proxy are delayed, as by an overloaded API server.
func (w *World) rollLate(ctx context.Context, node string, delay time.Duration) error {
	if err := w.performVerb(ctx, "api delay", node, "by", delay.String()); err != nil {
		return err
	}
	begin := w.Clock.Now()
	if err := w.rollAndFollow(ctx); err != nil {
		return err
	}
	w.excuseExits(node, begin, delay+w.Params.exitFall())
	return w.performVerb(ctx, "api delay", node, "by", "0s")
}

// watchesWithin bounds the time until each proxy watches again. Clients wait up to 30 s between two attempts.
const watchesWithin = 3 * time.Minute

func (w *World) apiAway(ctx context.Context, away time.Duration) error {
	if err := w.performVerb(ctx, "api away", timeline.All); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, away); err != nil {
		return err
	}
	if err := w.performVerb(ctx, "api back", timeline.All); err != nil {
		return err
	}
	return w.await(ctx, "watching", timeline.All, watchesWithin)
}

func (w *World) relist(ctx context.Context) error {
	if err := w.performVerb(ctx, "api expire", timeline.All); err != nil {
		return err
	}
	return w.await(ctx, "watching", timeline.All, watchesWithin)
}
