package site

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/cluster"
)

// nodesWithin is how long the nodes of a new cluster may take to become ready for pods.
const nodesWithin = 5 * time.Minute

// Throwaway is a cluster that kind makes for the run and deletes after it.
type Throwaway struct {
	*Cluster
	made *cluster.Throwaway // nil before it is made
}

// Prepare makes the cluster.
func (t *Throwaway) Prepare(ctx context.Context) error {
	live := &t.live
	if err := cluster.CheckKindVersion(live.Kind); err != nil {
		return UsageError{Reason: err}
	}
	if live.DryRun {
		t.message(fmt.Sprintf("it makes a cluster hitless-… of Kubernetes %s with kind, with a node for the control plane and %d for pods, runs %s on it, and deletes it; nothing was done",
			live.Kind, live.Nodes, t.Scenario))
		return ErrDryRun
	}
	if live.Provider == nil {
		live.Provider = cluster.Kind
	}
	provider, err := live.Provider(ctx)
	if err != nil {
		return UsageError{Reason: err}
	}
	t.message(fmt.Sprintf("making a cluster of Kubernetes %s with %d nodes for pods", live.Kind, live.Nodes))
	if t.made, err = cluster.MakeThrowaway(ctx, provider, live.Kind, live.Nodes); err != nil {
		return UsageError{Reason: err}
	}
	t.message("made the cluster " + t.made.Name)
	live.Kubeconfig = t.made.Kubeconfig
	c, err := live.Open()
	if err != nil {
		return err
	}
	if err := c.Settle(ctx, live.Nodes, nodesWithin); err != nil {
		return UsageError{Reason: err}
	}
	return t.Cluster.Prepare(ctx)
}

// Close releases the folder and deletes the cluster, whatever the result of the run.
func (t *Throwaway) Close(ctx context.Context) {
	defer t.Cluster.Close(ctx)
	if t.made == nil {
		return
	}
	t.message("deleting the cluster " + t.made.Name)
	if left := t.made.Delete(ctx); left != nil { // the measurement stays valid
		t.message(left.Error())
	}
}
