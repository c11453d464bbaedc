package scenarios

import (
	"context"
	"time"
)

// quietFor is the length of the scenario.
var quietFor = newDuration("quietFor", "10s", "time without disturbance", time.Second, 24*time.Hour)

// quiet disturbs nothing: it is the control of the other scenarios.
func quiet() Scenario {
	return Scenario{
		Name:       "quiet",
		Summary:    "disturbs nothing; the control of all other scenarios",
		Parameters: []Parameter{quietFor.Parameter, laneParameters()},
		Setup:      func(p Params) Setup { return Setup{Lasts: quietFor.Of(p)} },
		Run: func(ctx context.Context, w *World) error {
			return w.Step(ctx, "disturb nothing", "", func(ctx context.Context) error {
				return w.Clock.Sleep(ctx, quietFor.Of(w.Params))
			})
		},
	}
}
