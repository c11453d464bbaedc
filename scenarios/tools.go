package scenarios

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Tools is the value of Meddling for programs that fail with which the proxy writes its rules.
const Tools = "tools"

// failTools lets the tools of a node's proxy fail until a pod of the node has ended, and for the time of the scenario after that. The proxy
// must have followed the end of the pod followTime after the tools work again.
func (w *World) failTools(ctx context.Context, node string) error {
	at := w.Clock.Now()
	if err := w.performVerb(ctx, timeline.Block, node); err != nil {
		return err
	}
	w.recordInterference(at, node, "begin", "the programs failed with which the proxy of "+node+" writes its rules")
	deleted := w.Clock.Now()
	if err := w.endPodOf(ctx, node); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, lastsFor.Of(w.Params)); err != nil {
		return err
	}
	if err := w.performVerb(ctx, "proxy unblock", node); err != nil {
		return err
	}
	work := w.Clock.Now()
	w.recordInterference(work, node, "end", "the programs work again with which the proxy of "+node+" writes its rules")
	if err := w.excuseTools(ctx, node, deleted, work); err != nil {
		return err
	}
	if err := w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime()); err != nil {
		return err
	}
	return w.awaitBalanced(ctx)
}

// endPodOf deletes a pod of the Deployment on a node, and waits until it has ended.
func (w *World) endPodOf(ctx context.Context, node string) error {
	pod, err := w.deletePod(ctx, node)
	if err != nil {
		return err
	}
	return w.await(ctx, "gone", pod, w.podReplacementTime())
}

// excuseTools records what is lost over a node whose proxy cannot follow the end of a pod: from then on, until the proxy must have
// followed. With policy Local a node without a ready pod loses connections until the load balancer can have removed it.
func (w *World) excuseTools(ctx context.Context, node string, deleted, work time.Duration) error {
	pods, err := w.sharesOn(ctx, node)
	if err != nil {
		return err
	}
	until := work + followTime
	if w.run.main.answersLocally(w) && pods.some == 0 {
		until = work + w.Params.exitFall()
	}
	w.excuse(node, fmt.Sprintf("the programs of the proxy of %s failed while a pod ended, and a proxy may take %s to follow once they work again", node, followTime),
		record.Excuse{Path: record.PathNode, From: deleted + w.Params.exitTime(), Until: until}, refusals)
	return nil
}
