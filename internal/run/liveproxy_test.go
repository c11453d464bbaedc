package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The proxy of test clusters.
const (
	proxySet   = "kube-system/ds/kube-proxy"
	firstImage = "registry.example/kube-proxy:v1"
	nextImage  = "registry.example/kube-proxy:v2"
	badImage   = "registry.example/kube-proxy:broken" // its pods do not become ready
)

// addProxy creates the DaemonSet kube-system/kube-proxy.
func (s *stand) addProxy(t *testing.T) {
	t.Helper()
	labels := map[string]string{"k8s-app": "kube-proxy"}
	d := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: firstImage}}}}}}
	if _, err := s.server.Apply(d); err != nil {
		t.Fatal(err)
	}
}

// playProxySet simulates the controller of DaemonSets: one pod on each node, and pods of an old template are replaced one at a time.
func playProxySet(ctx context.Context, client kubernetes.Interface, nodes []string, does *atomic.Int32) error {
	made := 0
	return every(ctx, func() error {
		if does.Load() == idles {
			return nil
		}
		sets, err := client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range sets.Items {
			if err := stepProxySet(ctx, client, &sets.Items[i], nodes, &made, does.Load() == claims); err != nil {
				return err
			}
		}
		return nil
	})
}

const templateLabel = "pod-template-hash"

// The behaviours of the simulated controller.
const (
	_      int32 = iota // correct
	idles               // does nothing
	claims              // writes a status of a complete rollout, and does nothing
)

// stepProxySet creates or deletes a pod, and writes the status.
func stepProxySet(ctx context.Context, client kubernetes.Interface, d *appsv1.DaemonSet, nodes []string, made *int, claims bool) error {
	text, _ := json.Marshal(d.Spec.Template)
	h := fnv.New32a()
	h.Write(text)
	hash := fmt.Sprint(h.Sum32())
	list, err := client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return err
	}
	status := appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: int32(len(nodes))}
	var old *corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Labels[templateLabel] != hash {
			old = pod
			continue
		}
		status.UpdatedNumberScheduled++
		if isReady(pod) {
			status.NumberReady++
		}
	}
	for _, node := range nodes {
		if !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node }) {
			*made++
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("kube-proxy-%d", *made), Namespace: d.Namespace,
				Labels:          map[string]string{"k8s-app": "kube-proxy", templateLabel: hash},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}}, Spec: d.Spec.Template.Spec}
			pod.Spec.NodeName = node
			_, err := client.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}
	}
	if claims {
		status.UpdatedNumberScheduled, status.NumberReady = status.DesiredNumberScheduled, status.DesiredNumberScheduled
	} else if old != nil && old.DeletionTimestamp == nil && status.NumberReady == status.UpdatedNumberScheduled {
		return client.CoreV1().Pods(d.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{})
	}
	d.Status = status
	_, _ = client.AppsV1().DaemonSets(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}) // a conflict is met again
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// proxies returns the uids of the proxy's pods by node.
func (s *stand) proxies(t *testing.T) map[string]string {
	t.Helper()
	list, err := s.direct.CoreV1().Pods("kube-system").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, pod := range list.Items {
		uids[pod.Spec.NodeName] += string(pod.UID)
	}
	return uids
}

// proxyWaits reports whether a container of a proxy's pod waits.
func (s *stand) proxyWaits(t *testing.T) bool {
	list, err := s.direct.CoreV1().Pods("kube-system").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return false
	}
	return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil
	})
}

// proxy returns the proxy's DaemonSet.
func (s *stand) proxy(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	d, err := s.direct.AppsV1().DaemonSets("kube-system").Get(context.Background(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantProxy fails the test unless the proxy's DaemonSet has the image and no restore annotation.
func (s *stand) wantProxy(t *testing.T, image string) {
	t.Helper()
	d := s.proxy(t)
	if got := d.Spec.Template.Spec.Containers[0].Image; got != image {
		t.Errorf("the proxy has the image %s, want %s", got, image)
	}
	for key := range d.Annotations {
		if strings.HasPrefix(key, "hitless/") {
			t.Errorf("the proxy's DaemonSet still has %s: %s", key, d.Annotations[key])
		}
	}
}

// wantNode fails the test unless the node is schedulable, has exactly these taints, and no restore annotation.
func (s *stand) wantNode(t *testing.T, name string, taints ...string) {
	t.Helper()
	n, err := s.direct.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, taint := range n.Spec.Taints {
		has = append(has, taint.Key)
	}
	if n.Spec.Unschedulable || !slices.Equal(has, taints) || n.Annotations["hitless/put-back"] != "" {
		t.Errorf("%s: unschedulable=%t, taints %v, annotations %v; want one that takes pods with the taints %v", name, n.Spec.Unschedulable, has, n.Annotations, taints)
	}
}
