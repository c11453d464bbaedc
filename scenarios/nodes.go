package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// changeNode cordons or taints a node, or both, and checks the answer. A merge patch replaces all taints, so the
// existing ones are written back; after a conflict it starts again.
func (w *World) changeNode(ctx context.Context, node string, c Change, effect corev1.TaintEffect) error {
	for n := 1; ; n++ {
		err := w.tryNode(ctx, node, c, effect)
		if !apierrors.IsConflict(err) || n == maxConflicts {
			return err
		}
	}
}

func (w *World) tryNode(ctx context.Context, node string, c Change, effect corev1.TaintEffect) error {
	now, err := w.node(ctx, node)
	if err != nil {
		return err
	}
	spec, meta := map[string]any{}, map[string]any{"resourceVersion": now.ResourceVersion}
	if c.Cordoned {
		spec["unschedulable"] = true
	}
	if c.Taint != "" {
		spec["taints"] = append(now.Spec.Taints, corev1.Taint{Key: c.Taint, Effect: effect})
	}
	if m, err := part[Marks](w.Site, MarkedChanges); err == nil {
		meta["annotations"] = m.Mark(c)
	}
	data, err := json.Marshal(map[string]any{"metadata": meta, "spec": spec})
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := w.Cluster.Patch(ctx, n, k8s.Patch{PatchType: types.MergePatchType, Data: data}); err != nil {
		return fmt.Errorf("changing the node %s: %w", node, err)
	}
	if c.Cordoned && !n.Spec.Unschedulable || c.Taint != "" && !tainted(n, c.Taint) {
		return fmt.Errorf("%s is as it was after %s: %+v", node, data, n.Spec)
	}
	return nil
}

// node reads a node.
func (w *World) node(ctx context.Context, name string) (*corev1.Node, error) {
	var list corev1.NodeList
	if err := w.Cluster.GetControllerRuntimeClient().List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
		return nil, fmt.Errorf("reading the node %s: %w", name, err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there is no node %s", name)
	}
	return &list.Items[0], nil
}

func tainted(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// createBudget creates the PodDisruptionBudget of the measured Deployment.
func (w *World) createBudget(ctx context.Context, least int) error {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: w.run.main.name, Namespace: w.namespace()},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt(least)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.run.main.name}}}}
	if err := w.Cluster.Create(ctx, budget); err != nil {
		return fmt.Errorf("creating the PodDisruptionBudget: %w", err)
	}
	return nil
}

// evictAll evicts each pod of a node and waits until they are gone. It retries an eviction that a budget forbids, as
// `kubectl drain` does every 5 s.
func (w *World) evictAll(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, err := w.evictablePods(ctx, node)
	if err != nil {
		return nil, err
	}
	most := time.Duration(len(pods)+1) * w.podReplacementTime()
	for _, pod := range pods {
		if err := w.evict(ctx, &pod); err != nil {
			return nil, err
		}
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil { // of pods of others
			most = max(most, time.Duration(*grace)*time.Second+time.Minute)
		}
	}
	return pods, w.Until(ctx, "the evicted pods to be gone", most, func(ctx context.Context) (bool, string, error) {
		left, err := w.evictablePods(ctx, node)
		left = slices.DeleteFunc(left, func(p corev1.Pod) bool {
			return !slices.ContainsFunc(pods, func(e corev1.Pod) bool { return e.UID == p.UID })
		})
		names, _ := describe(left)
		return len(left) == 0, fmt.Sprintf("%d pods on %s: %s", len(left), node, strings.Join(names, ", ")), err
	})
}

func (w *World) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := w.Cluster.WithNamespace(w.namespace()).List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", node, err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != node }), nil
}

// evict retries until the budgets allow the eviction of a pod.
func (w *World) evict(ctx context.Context, pod *corev1.Pod) error {
	evictions := w.Cluster.GetControllerRuntimeClient().SubResource("eviction")
	most := 3 * w.podReplacementTime()
	if within := evictWithin.Of(w.Params); within > 0 {
		most = within
	}
	return w.Until(ctx, "the eviction of "+pod.Namespace+"/"+pod.Name, most, func(ctx context.Context) (bool, string, error) {
		err := evictions.Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
		if apierrors.IsTooManyRequests(err) { // its budget has no pod to spare now
			return false, err.Error(), w.Clock.Sleep(ctx, 5*time.Second)
		}
		if apierrors.IsNotFound(err) { // it ended before its eviction
			err = nil
		}
		return err == nil, "", err
	})
}

// bootNode boots a node, and returns when it serves: its proxy has a new process id, the workload is complete, and the
// load balancer sends it flows.
func (w *World) bootNode(ctx context.Context, node string, before int) error {
	if err := w.performVerb(ctx, "node on", node); err != nil {
		return err
	}
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	after, err := proxies.Pid(node)
	if err != nil {
		return fmt.Errorf("%s has power, but its proxy does not run: %w", node, err)
	}
	if after == before {
		return fmt.Errorf("the proxy on %s has the process id %d, as before: the node did not boot", node, after)
	}
	if err := w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime()); err != nil {
		return err
	}
	return w.awaitReturn(ctx, node)
}

// awaitRemoval waits until the load balancer no longer sends new flows to a node without power.
func (w *World) awaitRemoval(ctx context.Context, node string) error {
	return w.Until(ctx, "the load balancer to send no flow to "+node, w.membershipTime(), func(context.Context) (bool, string, error) {
		nodes, known := w.members(w.run.main.name)
		return !known || !slices.Contains(nodes, node), "it sends them to " + strings.Join(nodes, ", "), nil
	})
}

// awaitReturn waits until the load balancer sends new flows to a node that has booted. The subject fails where its proxy on the node does
// not pass the health checks.
func (w *World) awaitReturn(ctx context.Context, node string) error {
	k, within := w.run.main, w.membershipTime()
	k.wrong = map[string]wrongNode{}
	return k.judgeMembers(w, within, w.Until(ctx, "the load balancer to send flows to "+node, within, func(context.Context) (bool, string, error) {
		nodes, known := w.members(k.name)
		k.noteWrong(w, nodes, append(slices.Clone(nodes), node))
		return !known || slices.Contains(nodes, node), "it sends them to " + strings.Join(nodes, ", "), nil
	}))
}

// mark adds to the metadata of a patch the annotations by which the change can be undone without knowledge of the run.
func (w *World) mark(patch map[string]any, c Change) {
	if m, err := part[Marks](w.Site, MarkedChanges); err == nil {
		patch["metadata"] = map[string]any{"annotations": m.Mark(c)}
	}
}

// putBack undoes the changes of what belongs to the cluster.
func (w *World) putBack(ctx context.Context, name, node string) error {
	m, err := part[Marks](w.Site, MarkedChanges)
	if err != nil {
		return err
	}
	return w.Step(ctx, name, node, m.PutBack)
}
