package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// faultFor is the length of the fault.
var faultFor = newDuration("faultDuration", "700ms", "duration of the fault", 10*time.Millisecond, time.Minute)

// fault empties the tables of one node's proxy for a known time. A report must find that outage, its node and its
// length, and no other.
func fault() Scenario {
	return Scenario{
		Name:    "fault",
		Summary: "suspends one node's proxy and empties its tables for a known time; tests hitless itself",
		Parameters: []Parameter{
			laneParameters(),
			nodeChoice.withDefault("node-2").withHelp("the node that gets the fault"),
			faultFor.Parameter,
			Replicas.withDefault("3"),
		},
		Steps: always([]string{"proxy freeze", "proxy flush", "proxy restore", "proxy thaw"}),
		Setup: func(p Params) Setup { return Setup{Lasts: faultFor.Of(p)} },
		Run: func(ctx context.Context, w *World) error {
			node := nodeChoice.Of(w.Params)
			if !slices.Contains(w.Nodes, node) {
				return fmt.Errorf("no node %q; the nodes are %s", node, strings.Join(w.Nodes, ", "))
			}
			return w.Step(ctx, "empty the proxy tables of "+node, node, func(ctx context.Context) error { return w.blackout(ctx, node) })
		},
	}
}

// blackout freezes the proxy, so that it cannot repair, empties its tables, restores them after the time of the fault,
// and continues the proxy.
func (w *World) blackout(ctx context.Context, node string) error {
	for _, verb := range []string{"proxy freeze", "proxy flush"} {
		if err := w.performVerb(ctx, verb, node); err != nil {
			return err
		}
	}
	if err := w.Clock.Sleep(ctx, faultFor.Of(w.Params)); err != nil {
		return err
	}
	if err := w.performVerb(ctx, "proxy restore", node); err != nil {
		return err
	}
	return w.performVerb(ctx, "proxy thaw", node)
}
