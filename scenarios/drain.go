package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/scenarios/timeline"
)

// The parameters of drain in a lab alone.
var (
	drainKind = newWord("what", "drain", "drain (cordon and evict), scaledown (the autoscaler marks a node without pods, then removes it), "+
		"poweroff (without warning) or reboot (without warning, and back)", "drain", "scaledown", "poweroff", "reboot")
	leaveAfter = newDuration("leave", "30s", "time from the autoscaler's mark to the removal of the node", 0, time.Hour)
)

// drain removes a node: by eviction, as `kubectl drain` and the cluster autoscaler do (kubernetes#50977, KEP-3836), or
// by a power cut (kubernetes#89392).
func drain() Scenario {
	return Scenario{
		Name:    "drain",
		Summary: "removes a node: by eviction, as the autoscaler does, by a power cut, or by a reboot",
		Steps:   always([]string{"node cordon", "node evict", "node off", "node on", "expect rolled-out"}),
		Parameters: []Parameter{
			laneParametersOffNodes(),
			drainKind.Parameter,
			nodeChoice.withHelp("the node; auto for the first that has a pod of the Deployment, with scaledown for the first that has none"),
			minAvailable.Parameter,
			leaveAfter.Parameter,
			offFor.withHelp("time of traffic without the node; with reboot, time without power"),
			Replicas.withDefault("2"),
			clusterPolicy,
		},
		Setup: func(p Params) Setup { return Setup{Lasts: p.drainTime()} },
		Run: func(ctx context.Context, w *World) error {
			node, err := w.chooseNode(ctx)
			if err != nil {
				return err
			}
			switch drainKind.Of(w.Params) {
			case "drain":
				return w.drainNode(ctx, node)
			case "scaledown":
				return w.scaleDown(ctx, node)
			case "poweroff":
				return w.powerOffNode(ctx, node)
			default:
				return w.rebootNode(ctx, node)
			}
		},
	}
}

// drainTime is about how long drain takes.
func (p Params) drainTime() time.Duration {
	switch drainKind.Of(p) {
	case "drain":
		return p.rollTime(1) + offFor.Of(p)
	case "scaledown":
		return leaveAfter.Of(p) + offFor.Of(p)
	case "reboot":
		return offFor.Of(p) + p.memberTime() + startTime
	}
	return offFor.Of(p)
}

// chooseNode returns the node of the parameter node. With auto it is the first that fits.
func (w *World) chooseNode(ctx context.Context) (string, error) {
	pods, err := w.run.main.pods(ctx, w)
	if err != nil {
		return "", fmt.Errorf("listing the pods: %w", err)
	}
	with, transit := readyNodes(pods), drainKind.Of(w.Params) == "scaledown"
	if node := nodeChoice.Of(w.Params); node != "auto" {
		if !slices.Contains(w.Nodes, node) {
			return "", fmt.Errorf("no node %q; the nodes are %s", node, strings.Join(w.Nodes, ", "))
		}
		if slices.Contains(with, node) == transit {
			return "", fmt.Errorf("the pods of the Deployment are on %s; %s with node=%s shows nothing", strings.Join(with, ", "), w.Params.given(drainKind.Parameter), node)
		}
		return node, nil
	}
	for _, node := range w.Nodes {
		if slices.Contains(with, node) != transit {
			return node, nil
		}
	}
	return "", fmt.Errorf("no node fits %s: the pods of the Deployment are on %s of the nodes %s; change replicas or --nodes",
		w.Params.given(drainKind.Parameter), strings.Join(with, ", "), strings.Join(w.Nodes, ", "))
}

// drainNode cordons the node and evicts its pods, as `kubectl drain` does, and then lets traffic flow without them.
func (w *World) drainNode(ctx context.Context, node string) error {
	if err := w.Step(ctx, "cordon "+node, node, func(ctx context.Context) error { return w.performVerb(ctx, "node cordon", node) }); err != nil {
		return err
	}
	err := w.Step(ctx, "evict the pods of "+node, node, func(ctx context.Context) error {
		if err := w.evictWithBudget(ctx, node); err != nil {
			return err
		}
		if !slices.ContainsFunc(w.state().evicted, func(p corev1.Pod) bool { return p.Labels["app"] == w.run.main.name }) {
			return fmt.Errorf("no pod of the Deployment was on %s: nothing was drained", node)
		}
		return w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime())
	})
	if err != nil {
		return err
	}
	return w.Clock.Sleep(ctx, offFor.Of(w.Params))
}

// evictWithBudget evicts the pods of a node, as far as the PodDisruptionBudget of the parameters allows.
func (w *World) evictWithBudget(ctx context.Context, node string) error {
	var budget []string
	if least := minAvailable.Of(w.Params); least > 0 {
		budget = []string{"minAvailable", strconv.Itoa(least)}
	}
	return w.performVerb(ctx, "node evict", node, budget...)
}

// scaleDown removes a node as the autoscaler does: it taints the node, evicts its pods, and cuts its power later.
func (w *World) scaleDown(ctx context.Context, node string) error {
	err := w.Step(ctx, "mark "+node+" for removal and evict its pods", node, func(ctx context.Context) error {
		begin := w.Clock.Now()
		if err := w.performVerb(ctx, "node cordon", node, "taint", timeline.AutoscalerTaint); err != nil {
			return err
		}
		if err := w.performVerb(ctx, "node evict", node); err != nil {
			return err
		}
		return w.Clock.Sleep(ctx, begin+leaveAfter.Of(w.Params)-w.Clock.Now())
	})
	if err != nil {
		return err
	}
	return w.powerOffNode(ctx, node)
}

// powerOffNode cuts the power of a node, waits until the load balancer has removed it, and lets traffic flow without it.
func (w *World) powerOffNode(ctx context.Context, node string) error {
	begin := w.Clock.Now()
	err := w.Step(ctx, "take the power from "+node, node, func(ctx context.Context) error {
		if err := w.performVerb(ctx, "node off", node); err != nil {
			return err
		}
		return w.awaitRemoval(ctx, node)
	})
	if err != nil {
		return err
	}
	return w.Clock.Sleep(ctx, begin+offFor.Of(w.Params)-w.Clock.Now())
}

// rebootNode cuts the power of a node and boots it again.
func (w *World) rebootNode(ctx context.Context, node string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	before, err := proxies.Pid(node)
	if err != nil {
		return err
	}
	if err := w.powerOffNode(ctx, node); err != nil {
		return err
	}
	return w.Step(ctx, "boot "+node, node, func(ctx context.Context) error { return w.bootNode(ctx, node, before) })
}
