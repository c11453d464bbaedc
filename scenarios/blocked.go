package scenarios

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Programs is the value of Meddling for a proxy's programs that fail.
const Programs = "programs"

// failPrograms makes the programs of a node's proxy fail until a pod of the node has ended, and for the time of the scenario after that.
func (w *World) failPrograms(ctx context.Context, node string) error {
	at := w.Clock.Now()
	if err := w.performVerb(ctx, timeline.Block, node); err != nil {
		return err
	}
	w.recordInterference(at, node, record.InterferenceBegin, "the programs that the proxy of "+node+" writes its rules with failed")
	if err := w.endPodOf(ctx, node); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, lastsFor.Of(w.Params)); err != nil {
		return err
	}
	if err := w.performVerb(ctx, timeline.Unblock, node); err != nil {
		return err
	}
	w.recordInterference(w.Clock.Now(), node, record.InterferenceEnd, "the programs that the proxy of "+node+" writes its rules with work again")
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

// blockade is the time in which a node's proxy is blocked.
type blockade struct {
	since time.Duration
	pods  []corev1.Pod  // of the measured Service, to which the proxy sends connections meanwhile
	ends  time.Duration // the earliest end of one of them by a step; 0 for none
}

// block notes that a node's proxy is blocked from now on, and the ready pods that it knows. With policy Local these are the node's own.
func (w *World) block(ctx context.Context, node string) (*blockade, error) {
	b := &blockade{since: w.Clock.Now()}
	if w.run.main == nil {
		return b, nil
	}
	pods, err := w.run.main.pods(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	local := w.run.main.answersLocally(w)
	for _, p := range pods {
		if podIsReady(p) && p.DeletionTimestamp == nil && (!local || p.Spec.NodeName == node) {
			b.pods = append(b.pods, p)
		}
	}
	return b, nil
}

// noteEnds notes that a step ends pods of the measured Service, with at most a grace period. Each blocked proxy goes on to use them.
func (w *World) noteEnds(grace time.Duration, which func(corev1.Pod) bool) {
	for _, b := range w.state().blocked {
		at := w.Clock.Now() + min(grace, w.Params.exitTime())
		if slices.ContainsFunc(b.pods, which) && (b.ends == 0 || at < b.ends) {
			b.ends = at
		}
	}
}

// ownGrace stands for the grace period of the pods, which exitTime respects.
const ownGrace = time.Duration(math.MaxInt64)

func anyPod(corev1.Pod) bool { return true }

// checkBlocked returns an error for a proxy that is or was blocked, and whose programs were not called to write then: no sync has failed.
func (w *World) checkBlocked(node string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	failed, err := proxies.FailedCalls(node)
	if err != nil {
		return fmt.Errorf("finding the failed calls of the proxy of %s: %w", node, err)
	}
	if failed > 0 {
		return nil
	}
	return fmt.Errorf("the proxy of %s called none of its programs to write while it was blocked, so no sync failed; change an endpoint while it is blocked, "+
		"or give a subject that writes its rules with such programs", node)
}

// checkAllBlocked is checkBlocked for each proxy that is still blocked.
func (w *World) checkAllBlocked() error {
	for _, node := range slices.Sorted(maps.Keys(w.state().blocked)) {
		if err := w.checkBlocked(node); err != nil {
			return err
		}
	}
	return nil
}

// endBlock ends the block of a node's proxy, if there is one, because the node loses power: it boots with programs that work.
func (w *World) endBlock(ctx context.Context, node string) error {
	b := w.state().blocked[node]
	if b == nil {
		return nil
	}
	if err := w.checkBlocked(node); err != nil {
		return err
	}
	delete(w.state().blocked, node)
	return w.excuseBlocked(ctx, node, "", w.Clock.Now(), b)
}

// excuseUnblocked records what is lost over a node until its proxy must have followed the end of pods while it was blocked. With policy
// Local a node without a ready pod loses connections until the load balancer can have removed it.
func (w *World) excuseUnblocked(ctx context.Context, node string, b *blockade) error {
	work := w.Clock.Now()
	why, until := fmt.Sprintf(", and a proxy may take %s to follow once they work again", followTime), work+followTime
	pods, err := w.sharesOn(ctx, node)
	if err != nil {
		return err
	}
	if w.run.main != nil && w.run.main.answersLocally(w) && pods.some == 0 {
		until = work + w.Params.exitFall()
		why = fmt.Sprintf(", a proxy may take %s to follow once they work again, and the load balancer may need %s more to remove the node", followTime, until-work-followTime)
	}
	return w.excuseBlocked(ctx, node, why, until, b)
}

// excuseBlocked records what is lost over a node until a time, because its proxy was blocked while pods ended. Only their share of the
// connections over the node is lost: the others reach pods that are there.
func (w *World) excuseBlocked(ctx context.Context, node, why string, until time.Duration, b *blockade) error {
	if len(b.pods) == 0 {
		return nil
	}
	now, err := w.run.main.pods(ctx, w)
	if err != nil {
		return fmt.Errorf("listing the pods: %w", err)
	}
	left := 0
	for _, p := range b.pods {
		if slices.ContainsFunc(now, func(n corev1.Pod) bool { return n.UID == p.UID && n.DeletionTimestamp == nil }) {
			left++
		}
	}
	if left == len(b.pods) {
		return nil
	}
	share := 1 - float64(left)/float64(len(b.pods))
	w.excuse(node, fmt.Sprintf("the programs of the proxy of %s failed while a pod ended%s", node, why),
		record.Excuse{Path: record.PathNode, Share: share, From: max(b.since, b.ends), Until: until}, refusals)
	return nil
}
