package scenarios

import (
	"context"
	"time"
)

// quietFor is the length of the scenario.
var quietFor = newDuration("quietFor", "10s", "how long nothing happens", time.Second, 24*time.Hour)

// quiet disturbs nothing: it is the control of the other scenarios.
func quiet() Scenario {
	return Scenario{
		Name:       "quiet",
		Summary:    "disturbs nothing for a while",
		Parameters: []Parameter{quietFor.Parameter, laneParameters()},
		Run: func(ctx context.Context, w *World) error {
			return w.Step(ctx, "disturb nothing", "", func(ctx context.Context) error {
				return w.Clock.Sleep(ctx, quietFor.Of(w.Params))
			})
		},
	}
}
