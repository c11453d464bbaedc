package observers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/record"
)

// WatchNodes records the changes of nodes in the API until ctx ends: unready, ready, cordoned, uncordoned and removed. Of the nodes that
// exist when it starts, it records those that are unready or cordoned. It returns an error only when the watch cannot be set up.
func WatchNodes(ctx context.Context, client kubernetes.Interface, recorder record.Recorder, now func() time.Duration) error {
	informer := func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Nodes().Informer()
	}
	return changesOf("nodes", informer, nodeChanges)(ctx, client, "", recorder, now)
}

// nodeChanges returns the events between two versions of a node; nil stands for a node that does not exist.
func nodeChanges(before, after *corev1.Node) (events []record.Event) {
	say := func(n *corev1.Node, state record.NodeState, what string) {
		events = append(events, record.Event{Node: n.Name, Object: n.Name, Text: "node " + n.Name + " " + what + ", by the API", Body: record.Node{State: state}})
	}
	if after == nil {
		say(before, record.NodeRemoved, "was removed")
		return events
	}
	wasReady, wasCordoned := true, false
	if before != nil {
		wasReady, wasCordoned = NodeReady(before), before.Spec.Unschedulable
	}
	switch is := NodeReady(after); {
	case wasReady && !is:
		say(after, record.NodeUnready, "is not ready")
	case is && !wasReady:
		say(after, record.NodeReady, "is ready")
	}
	switch is := after.Spec.Unschedulable; {
	case is && !wasCordoned:
		say(after, record.NodeCordoned, "is cordoned")
	case wasCordoned && !is:
		say(after, record.NodeUncordoned, "is uncordoned")
	}
	return events
}

// NodeReady reports whether the API has a node as ready.
func NodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
