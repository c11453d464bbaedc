package scenarios

import (
	"context"
	"time"
)

// quiet does nothing for a while: the control of every other scenario.
func quiet() Scenario {
	return Scenario{
		Name:       "quiet",
		Summary:    "disturbs nothing for a while",
		Parameters: []Parameter{{"quietFor", "10s", "how long nothing happens", durationIn(time.Second, 24*time.Hour), nil, nil}, lanesParameter},
		Run: func(ctx context.Context, w *World) error {
			return w.Step(ctx, "disturb nothing", "", func(ctx context.Context) error {
				return w.Clock.Sleep(ctx, w.Params.duration("quietFor"))
			})
		},
	}
}
