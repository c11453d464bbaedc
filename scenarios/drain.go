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

// The parameters of drain in a lab alone.
var (
	drainKind = newWord("what", "drain", "drain (cordon and evict), scaledown (the autoscaler marks a node without pods, then removes it), "+
		"poweroff (without warning) or reboot (without warning, and back)", "drain", "scaledown", "poweroff", "reboot")
	leaveAfter = newDuration("leave", "30s", "how long a node lives on after the autoscaler marked it", 0, time.Hour)
)

// drain takes a node away: with care, as `kubectl drain` and the cluster autoscaler do (kubernetes#50977, KEP-3836), or
// without, as a power cut does (kubernetes#89392).
func drain() Scenario {
	return Scenario{
		Name:    "drain",
		Summary: "takes a node away: by eviction, by the autoscaler, by a power cut, or by a reboot",
		Steps:   always([]string{stepCordon, stepEvict, "node off", "node on", "expect rolled-out"}),
		Parameters: []Parameter{
			laneParametersOffNodes(),
			drainKind.Parameter,
			nodeChoice.withHelp("the node; auto for the first that has a pod of the Deployment, with scaledown for the first that has none"),
			minAvailable.Parameter,
			leaveAfter.Parameter,
			offFor.withHelp("how long traffic is watched without the node; with reboot, how long it has no power"),
			Replicas.withDefault("2"),
			clusterPolicy,
		},
		Run: func(ctx context.Context, w *World) error {
			node, err := w.leavingNode(ctx)
			if err != nil {
				return err
			}
			switch drainKind.Of(w.Params) {
			case "drain":
				return w.drainNode(ctx, node)
			case "scaledown":
				return w.scaleDown(ctx, node)
			case "poweroff":
				return w.loseNode(ctx, node)
			default:
				return w.rebootNode(ctx, node)
			}
		},
	}
}

// leavingNode is the node that the parameter names.
func (w *World) leavingNode(ctx context.Context) (string, error) {
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

// drainNode does what `kubectl drain` does, and then lets traffic flow without the node's pods.
func (w *World) drainNode(ctx context.Context, node string) error {
	if err := w.Step(ctx, "cordon "+node, node, func(ctx context.Context) error { return w.cordon(ctx, node, "") }); err != nil {
		return err
	}
	err := w.Step(ctx, "evict the pods of "+node, node, func(ctx context.Context) error {
		if err := w.protect(ctx); err != nil {
			return err
		}
		evicted, err := w.evictAll(ctx, node)
		if err == nil && !slices.ContainsFunc(evicted, func(p corev1.Pod) bool { return p.Labels["app"] == w.run.main.name }) {
			err = fmt.Errorf("no pod of the Deployment was on %s: nothing was drained", node)
		}
		if err != nil {
			return err
		}
		return w.run.main.available(ctx, w, w.perPod())
	})
	if err != nil {
		return err
	}
	return w.Clock.Sleep(ctx, offFor.Of(w.Params))
}

// autoscalerTaint is what the cluster autoscaler marks a node with before it removes it.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// scaleDown does what the autoscaler does: it marks the node, evicts its pods, and removes the machine some time later.
func (w *World) scaleDown(ctx context.Context, node string) error {
	err := w.Step(ctx, "mark "+node+" for removal and evict its pods", node, func(ctx context.Context) error {
		begin := w.Clock.Now()
		if err := w.cordon(ctx, node, autoscalerTaint); err != nil {
			return err
		}
		if _, err := w.evictAll(ctx, node); err != nil {
			return err
		}
		return w.Clock.Sleep(ctx, begin+leaveAfter.Of(w.Params)-w.Clock.Now())
	})
	if err != nil {
		return err
	}
	return w.loseNode(ctx, node)
}

// loseNode takes the power from a node, waits until the balancer has found out, and lets traffic flow without the node.
func (w *World) loseNode(ctx context.Context, node string) error {
	begin := w.Clock.Now()
	err := w.Step(ctx, "take the power from "+node, node, func(ctx context.Context) error {
		if err := w.act(ctx, "node off", node); err != nil {
			return err
		}
		return w.inBalancer(ctx, node, false)
	})
	if err != nil {
		return err
	}
	return w.Clock.Sleep(ctx, begin+offFor.Of(w.Params)-w.Clock.Now())
}

// rebootNode takes the power from a node and gives it back.
func (w *World) rebootNode(ctx context.Context, node string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	before, err := proxies.Pid(node)
	if err != nil {
		return err
	}
	if err := w.loseNode(ctx, node); err != nil {
		return err
	}
	return w.Step(ctx, "boot "+node, node, func(ctx context.Context) error { return w.bootNode(ctx, node, before) })
}

// cordon keeps new pods from a node, and marks it with a taint unless that is empty.
func (w *World) cordon(ctx context.Context, node, taint string) error {
	return w.changeNode(ctx, node, Change{Cordoned: true, Taint: taint}, corev1.TaintEffectNoSchedule)
}

// changeNode cordons or taints a node, or both, and sees in the answer that it is. A patch knows taints only all at once, so that those
// of others are read and written too, again where the node has been written meanwhile.
func (w *World) changeNode(ctx context.Context, node string, c Change, effect corev1.TaintEffect) error {
	for n := 1; ; n++ {
		err := w.tryNode(ctx, node, c, effect)
		if !apierrors.IsConflict(err) || n == conflicts {
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

// node is a node as it is now.
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

// protect makes the PodDisruptionBudget of the Deployment.
func (w *World) protect(ctx context.Context) error {
	least := minAvailable.Of(w.Params)
	if least == 0 {
		return nil
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: w.run.main.name, Namespace: w.namespace()},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt(least)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.run.main.name}}}}
	if err := w.Cluster.Create(ctx, budget); err != nil {
		return fmt.Errorf("creating the PodDisruptionBudget: %w", err)
	}
	return nil
}

// evictAll evicts every pod of a node, one after the other, and waits until they are gone. A budget that forbids it is asked
// again, as `kubectl drain` does every 5 s.
func (w *World) evictAll(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, err := w.leavers(ctx, node)
	if err != nil {
		return nil, err
	}
	most := time.Duration(len(pods)+1) * w.perPod()
	for _, pod := range pods {
		if err := w.evict(ctx, &pod); err != nil {
			return nil, err
		}
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil { // of pods of others
			most = max(most, time.Duration(*grace)*time.Second+time.Minute)
		}
	}
	return pods, w.Until(ctx, "the evicted pods to be gone", most, func(ctx context.Context) (bool, string, error) {
		left, err := w.leavers(ctx, node)
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

// evict asks until the budgets let a pod go.
func (w *World) evict(ctx context.Context, pod *corev1.Pod) error {
	evictions := w.Cluster.GetControllerRuntimeClient().SubResource("eviction")
	most := 3 * w.perPod()
	if within := evictWithin.Of(w.Params); within > 0 {
		most = within
	}
	return w.Until(ctx, "the eviction of "+pod.Namespace+"/"+pod.Name, most, func(ctx context.Context) (bool, string, error) {
		err := evictions.Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
		if apierrors.IsTooManyRequests(err) { // its budget has no pod to spare now
			return false, err.Error(), w.Clock.Sleep(ctx, 5*time.Second)
		}
		if apierrors.IsNotFound(err) { // it has gone by itself
			err = nil
		}
		return err == nil, "", err
	})
}
