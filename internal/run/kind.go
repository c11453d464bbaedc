package run

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/cluster"
)

// nodesWithin is how long the nodes of a new cluster may take until they take pods.
const nodesWithin = 5 * time.Minute

// runOnKind makes a cluster of kind, runs on it, and deletes it whatever has become of the run.
func runOnKind(ctx context.Context, o Options) (result *Result, err error) {
	live := *o.Live
	if err := cluster.CheckKindVersion(live.Kind); err != nil {
		return nil, UsageError{err}
	}
	if live.DryRun {
		o.message(fmt.Sprintf("it makes a cluster hitless-… of Kubernetes %s with kind, with a node for the control plane and %d for pods, runs %s on it, and deletes it; nothing was done",
			live.Kind, o.Nodes, o.Scenario))
		return &Result{}, nil
	}
	if live.Provider == nil {
		live.Provider = cluster.Kind
	}
	provider, err := live.Provider(ctx)
	if err != nil {
		return nil, UsageError{err}
	}
	o.message(fmt.Sprintf("making a cluster of Kubernetes %s with %d nodes for pods", live.Kind, o.Nodes))
	t, err := cluster.MakeThrowaway(ctx, provider, live.Kind, o.Nodes)
	if err != nil {
		return nil, UsageError{err}
	}
	defer func() {
		o.message("deleting the cluster " + t.Name)
		if left := t.Delete(ctx); left != nil { // which takes nothing from what was measured
			o.message(left.Error())
		}
	}()
	o.message("made the cluster " + t.Name)
	live.Kubeconfig = t.Kubeconfig
	c, err := live.open()
	if err != nil {
		return nil, err
	}
	if err := c.Settle(ctx, o.Nodes, nodesWithin); err != nil {
		return nil, UsageError{err}
	}
	o.Live = &live
	return runLive(ctx, o)
}
