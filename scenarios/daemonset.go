package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// proxySet is the DaemonSet of a live cluster's proxy.
var proxySet = newParameter("proxy", "", "the DaemonSet of the cluster's proxy, as NAMESPACE/ds/NAME, such as kube-system/ds/kube-proxy; must be given", parseProxySet)

// setName is the name of a DaemonSet.
type setName struct{ namespace, name string }

func parseProxySet(text string) (setName, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" || parts[1] != "ds" && parts[1] != "daemonset" {
		return setName{}, errors.New("give NAMESPACE/ds/NAME, such as kube-system/ds/kube-proxy")
	}
	return setName{parts[0], parts[2]}, nil
}

// ProxySet is the DaemonSet of the cluster's proxy on a live cluster; false when none was given.
func (p Params) ProxySet() (namespace, name string, given bool) {
	set := proxySet.Of(p)
	return set.namespace, set.name, set != setName{}
}

// proxySet reads the DaemonSet of the cluster's proxy.
func (w *World) proxySet(ctx context.Context) (*appsv1.DaemonSet, error) {
	namespace, name, given := w.Params.ProxySet()
	if !given {
		return nil, errors.New("what runs the cluster's proxy must be known: give --set proxy=NAMESPACE/ds/NAME, such as --set proxy=kube-system/ds/kube-proxy")
	}
	var d appsv1.DaemonSet
	switch err := w.Cluster.Get(ctx, name, namespace, &d); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no DaemonSet %s/%s; `kubectl get daemonsets -A` lists them, and --set proxy=NAMESPACE/ds/NAME names one", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("reading the DaemonSet %s/%s: %w", namespace, name, err)
	case d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return nil, fmt.Errorf("the DaemonSet %s/%s has the update strategy OnDelete: nothing would follow a change of its template", namespace, name)
	}
	return &d, nil
}

// ProxyLabels are the labels of the pods of the cluster's proxy, as a selector.
func (w *World) ProxyLabels(ctx context.Context) (string, error) {
	d, err := w.proxySet(ctx)
	if err != nil {
		return "", err
	}
	return metav1.FormatLabelSelector(d.Spec.Selector), nil
}

// proxyPods are the pods of a DaemonSet that are not terminating, by node.
func (w *World) proxyPods(ctx context.Context, d *appsv1.DaemonSet) (map[string]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of the DaemonSet %s: %w", d.Name, err)
	}
	var list corev1.PodList
	err = w.Cluster.GetControllerRuntimeClient().List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the DaemonSet %s: %w", d.Name, err)
	}
	byNode := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; metav1.IsControlledBy(pod, d) && pod.DeletionTimestamp == nil {
			byNode[pod.Spec.NodeName] = pod
		}
	}
	return byNode, nil
}

// proxyReplacementTime bounds the replacement of one proxy pod, image pull included, without its grace period.
const proxyReplacementTime = 3 * time.Minute

// rollProxies applies a change to the proxy's DaemonSet that replaces its pods, and waits until each node has a new one
// that is ready.
func (w *World) rollProxies(ctx context.Context, change func(ctx context.Context, d *appsv1.DaemonSet) error) error {
	before, err := w.proxySet(ctx)
	if err != nil {
		return err
	}
	old, err := w.proxyPods(ctx, before)
	if err != nil {
		return err
	}
	if len(old) == 0 {
		return fmt.Errorf("the DaemonSet %s/%s has no pod: nothing can be replaced", before.Namespace, before.Name)
	}
	if err := change(ctx, before); err != nil {
		return err
	}
	most := proxyReplacementTime
	if grace := before.Spec.Template.Spec.TerminationGracePeriodSeconds; grace != nil {
		most += time.Duration(*grace) * time.Second
	}
	what := fmt.Sprintf("each of %d nodes to have another pod of the DaemonSet %s/%s that is ready", len(old), before.Namespace, before.Name)
	return w.Until(ctx, what, time.Duration(len(old)+1)*most, func(ctx context.Context) (bool, string, error) { return w.proxiesRolled(ctx, before, old) })
}

// proxiesRolled reports whether the DaemonSet's controller has replaced all pods, and which are missing.
func (w *World) proxiesRolled(ctx context.Context, before *appsv1.DaemonSet, old map[string]*corev1.Pod) (bool, string, error) {
	d, err := w.proxySet(ctx)
	if err != nil {
		return false, "", err
	}
	switch s := d.Status; {
	case d.Generation == before.Generation:
		return false, fmt.Sprintf("its generation is %d, as before: nothing was changed", d.Generation), nil
	case s.ObservedGeneration < d.Generation:
		return false, fmt.Sprintf("its controller has seen generation %d of %d", s.ObservedGeneration, d.Generation), nil
	}
	pods, err := w.proxyPods(ctx, d)
	if err != nil {
		return false, "", err
	}
	var missing []string
	for node, was := range old {
		switch now := pods[node]; {
		case now == nil:
			missing = append(missing, node+" has none")
		case now.UID == was.UID:
			missing = append(missing, fmt.Sprintf("%s has %s, as before", node, now.Name))
		case !podIsReady(*now):
			missing = append(missing, fmt.Sprintf("%s has %s, which is not ready%s", node, now.Name, waitsFor(now)))
		}
	}
	if s := d.Status; len(missing) == 0 && s.UpdatedNumberScheduled < s.DesiredNumberScheduled {
		missing = append(missing, fmt.Sprintf("its status counts %d of %d", s.UpdatedNumberScheduled, s.DesiredNumberScheduled))
	}
	slices.Sort(missing)
	return len(missing) == 0, strings.Join(missing, "; "), nil
}

// waitsFor returns the reason for which a pod's container waits; empty when none waits.
func waitsFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return fmt.Sprintf(" (%s: %s)", c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	return ""
}

// restartSet makes the controller replace all pods of the proxy's DaemonSet, as `kubectl rollout restart` does.
func (w *World) restartSet(ctx context.Context) error {
	w.state().restarts++
	number := strconv.Itoa(w.state().restarts)
	return w.rollProxies(ctx, func(ctx context.Context, d *appsv1.DaemonSet) error {
		return w.patchSet(ctx, d, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{"hitless/restart": w.namespace() + "-" + number}}}}})
	})
}

func (w *World) patchSet(ctx context.Context, d *appsv1.DaemonSet, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	after := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace}}
	if err := w.Cluster.Patch(ctx, after, k8s.Patch{PatchType: types.StrategicMergePatchType, Data: data}); err != nil {
		return fmt.Errorf("changing the DaemonSet %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// touchesSet lists the pods of the proxy's DaemonSet that are replaced.
func (w *World) touchesSet(ctx context.Context) ([]string, error) {
	d, err := w.proxySet(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := w.proxyPods(ctx, d)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("the DaemonSet %s/%s has no pod: nothing can be replaced", d.Namespace, d.Name)
	}
	var names []string
	for node, pod := range pods {
		names = append(names, pod.Name+" on "+node)
	}
	slices.Sort(names)
	how := ""
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		how = ", " + r.MaxUnavailable.String() + " at a time"
	}
	return []string{fmt.Sprintf("the DaemonSet %s/%s: its controller replaces %d pods%s: %s", d.Namespace, d.Name, len(pods), how, strings.Join(names, ", "))}, nil
}
