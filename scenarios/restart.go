package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// restart restarts the proxy of each node in turn: what every upgrade and every crash does (kubernetes#75360, #73154).
func restart() Scenario {
	return Scenario{
		Name:    "restart",
		Summary: "restarts the proxy of each node, one after the other",
		Parameters: []Parameter{
			lanesParameter,
			{"signal", "TERM", "how the proxy ends: TERM or KILL", oneOf("TERM", "KILL")},
			{"downtime", "2s", "how long a node is without its proxy", durationIn(0, time.Hour)},
			{"replicas", "3", "pods of the Deployment", numberIn(1, 100)},
		},
		Run: func(ctx context.Context, w *World) error {
			for _, node := range w.Nodes {
				err := w.Step(ctx, "restart the proxy of "+node, node, func(ctx context.Context) error { return w.restartProxy(ctx, node) })
				if err != nil {
					return err
				}
				if err := w.Clock.Sleep(ctx, 5*time.Second); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (w *World) restartProxy(ctx context.Context, node string) error {
	end := w.Proxies.Stop
	if w.Params["signal"] == "KILL" {
		end = w.Proxies.Kill
	}
	before, err := w.Proxies.Pid(node)
	if err != nil {
		return err
	}
	if err := end(ctx, node); err != nil {
		return fmt.Errorf("ending the proxy: %w", err)
	}
	if err := w.Clock.Sleep(ctx, w.Params.duration("downtime")); err != nil {
		return err
	}
	if err := w.Proxies.Start(ctx, node); err != nil {
		return fmt.Errorf("starting the proxy again: %w", err)
	}
	after, err := w.Proxies.Pid(node)
	if err == nil && after == before {
		return errors.New("the proxy still has the process id that it had: it was not restarted")
	}
	return err
}
