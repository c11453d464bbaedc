package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// evictEveryPod is the value of evict for the pods of all namespaces, as with `kubectl drain`.
const evictEveryPod = "all"

// The parameters of drain on a live cluster alone.
var (
	liveDrainKind = newWord("what", "drain", "drain (cordon and evict), cordon or taint", "drain", "cordon", "taint")
	evicted       = newWord("evict", evictEveryPod, "pods that a drain evicts: all (as kubectl drain does, without those of DaemonSets) or own (those of this run)", evictEveryPod, "own")
	evictWithin   = newDuration("evictWithin", "5m", "longest time that a PodDisruptionBudget may forbid the eviction of a pod", time.Second, time.Hour)
	taintKey      = newText("taint", "hitless/taint", "key of the taint; the autoscaler marks a node with ToBeDeletedByClusterAutoscaler before it removes the node")
	taintEffect   = newWord("effect", string(corev1.TaintEffectNoSchedule), "effect of the taint: NoSchedule, PreferNoSchedule or NoExecute", "NoSchedule", "PreferNoSchedule", "NoExecute")
)

// drainLive is drain on a live cluster: actions of the API that can be undone.
func drainLive() Scenario {
	return Scenario{
		Name: "drain", Summary: "drains, cordons or taints a node, and restores it",
		Touches: func(ctx context.Context, w *World) ([]string, error) { return w.touchesNode(ctx) },
		Steps:   always([]string{stepLiveCordon, stepLiveEvict, "expect rolled-out", stepUndo}),
		Parameters: []Parameter{
			laneParametersOffNodes(),
			liveDrainKind.Parameter,
			nodeChoice.withDefault("").withHelp("the node; must be given"),
			evicted.Parameter,
			evictWithin.Parameter,
			taintKey.Parameter,
			taintEffect.Parameter,
			minAvailable.withHelp("minAvailable of the run's own PodDisruptionBudget; 0: no such object"),
			offFor.withDefault("60s").withHelp("time of traffic until the node is restored"),
			Replicas.withDefault("2"),
			clusterPolicy,
		},
		Run: func(ctx context.Context, w *World) error {
			node := nodeChoice.Of(w.Params)
			if err := w.takeNodeOut(ctx, node); err != nil {
				return err
			}
			return w.putBack(ctx, "put "+node+" back", node)
		},
	}
}

// takeNodeOut drains, cordons or taints a node, and lets traffic flow on.
func (w *World) takeNodeOut(ctx context.Context, node string) error {
	change, effect := Change{Cordoned: true}, corev1.TaintEffect("")
	switch liveDrainKind.Of(w.Params) {
	case "drain":
		if _, err := w.chooseNode(ctx); err != nil {
			return err
		}
		return w.drainNode(ctx, node)
	case "taint":
		change, effect = Change{Taint: taintKey.Of(w.Params)}, corev1.TaintEffect(taintEffect.Of(w.Params))
	}
	err := w.Step(ctx, liveDrainKind.Of(w.Params)+" "+node, node, func(ctx context.Context) error { return w.changeNode(ctx, node, change, effect) })
	if err != nil {
		return err
	}
	return w.Clock.Sleep(ctx, offFor.Of(w.Params))
}

// evictablePods are the pods of a node that a drain evicts.
func (w *World) evictablePods(ctx context.Context, node string) ([]corev1.Pod, error) {
	if evicted.Of(w.Params) != evictEveryPod {
		return w.podsOn(ctx, node)
	}
	var list corev1.PodList
	if err := w.Cluster.GetControllerRuntimeClient().List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", node, err)
	}
	return slices.DeleteFunc(list.Items, stays), nil
}

// stays reports whether a drain leaves a pod on its node: DaemonSet pods, mirror pods and ended pods stay.
func stays(pod corev1.Pod) bool {
	owner := metav1.GetControllerOf(&pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// touchesNode lists the changes of the node and the pods that are evicted.
func (w *World) touchesNode(ctx context.Context) ([]string, error) {
	node := nodeChoice.Of(w.Params)
	switch {
	case node == "":
		return nil, fmt.Errorf("which node? give --set node=NAME; those that take pods are %s", strings.Join(w.Nodes, ", "))
	case !slices.Contains(w.Nodes, node):
		return nil, fmt.Errorf("--set node=%s: the nodes that take pods are %s", node, strings.Join(w.Nodes, ", "))
	}
	switch liveDrainKind.Of(w.Params) {
	case "cordon":
		return []string{"the node " + node + ": it takes no new pods for " + offFor.Text(w.Params) + ", and is uncordoned then"}, nil
	case "taint":
		return w.touchesTaint(ctx, node)
	}
	pods, err := w.evictablePods(ctx, node)
	if err != nil {
		return nil, err
	}
	lines := []string{"the node " + node + ": it is cordoned, its pods are evicted, and after " + offFor.Text(w.Params) + " it is uncordoned"}
	if evicted.Of(w.Params) != evictEveryPod {
		return append(lines, "of its pods only those of this run are evicted"), nil
	}
	names, alone := describe(pods)
	if len(alone) > 0 {
		return nil, fmt.Errorf("the pods %s on %s have no controller that would make them again; move them, or give --set evict=own", strings.Join(alone, ", "), node)
	}
	return append(lines, fmt.Sprintf("%d pods of others are evicted, as their PodDisruptionBudgets allow: %s", len(pods), strings.Join(names, ", "))), nil
}

// describe returns the names of pods, and of those without a controller that would replace them.
func describe(pods []corev1.Pod) (names, alone []string) {
	for _, pod := range pods {
		name := pod.Namespace + "/" + pod.Name
		if metav1.GetControllerOf(&pod) == nil {
			alone = append(alone, name)
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
			name += " (its emptyDir is lost)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(alone)
	return names, alone
}

func (w *World) touchesTaint(ctx context.Context, node string) ([]string, error) {
	n, err := w.node(ctx, node)
	if err != nil {
		return nil, err
	}
	key, effect := taintKey.Of(w.Params), taintEffect.Of(w.Params)
	if tainted(n, key) {
		return nil, fmt.Errorf("--set taint=%s: %s has a taint of that key already; give another", key, node)
	}
	line := fmt.Sprintf("the node %s: it has the taint %s:%s for %s, which is taken away then", node, key, effect, offFor.Text(w.Params))
	if effect == string(corev1.TaintEffectNoExecute) {
		line += "; every pod there that does not tolerate it is deleted, whatever its PodDisruptionBudget says"
	}
	return []string{line}, nil
}
