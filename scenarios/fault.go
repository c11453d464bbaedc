package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// fault puts one known fault into one node's proxy: what a report must find, with its node, its length and nothing else.
func fault() Scenario {
	return Scenario{
		Name:    "fault",
		Summary: "empties one node's proxy tables for a known time while its proxy is stopped",
		Parameters: []Parameter{
			lanesParameter,
			{"node", "node-2", "the node that gets the fault", notEmpty, nil, nil},
			{"faultDuration", "700ms", "how long the fault lasts", durationIn(10*time.Millisecond, time.Minute), nil, nil},
			{"replicas", "3", "pods of the Deployment", numberIn(1, 100), nil, nil},
		},
		Steps: always([]string{"proxy freeze", "proxy flush", "proxy restore", "proxy thaw"}),
		Run: func(ctx context.Context, w *World) error {
			node := w.Params["node"]
			if !slices.Contains(w.Nodes, node) {
				return fmt.Errorf("no node %q; the nodes are %s", node, strings.Join(w.Nodes, ", "))
			}
			return w.Step(ctx, "empty the proxy tables of "+node, node, func(ctx context.Context) error { return w.blackout(ctx, node) })
		},
	}
}

// blackout freezes the proxy, so that it cannot repair, empties its tables, puts them back when the time is over, and
// thaws the proxy.
func (w *World) blackout(ctx context.Context, node string) error {
	for _, verb := range []string{"proxy freeze", "proxy flush"} {
		if err := w.act(ctx, verb, node); err != nil {
			return err
		}
	}
	if err := w.Clock.Sleep(ctx, w.Params.duration("faultDuration")); err != nil {
		return err
	}
	if err := w.act(ctx, "proxy restore", node); err != nil {
		return err
	}
	return w.act(ctx, "proxy thaw", node)
}

func notEmpty(value string) error {
	if value == "" {
		return fmt.Errorf("give a name")
	}
	return nil
}
