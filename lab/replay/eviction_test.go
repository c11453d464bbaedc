package replay_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A budget allows evictions while enough healthy pods remain; unready and terminating pods are not healthy.
func TestEvictionRespectsTheBudget(t *testing.T) {
	client, ctx := start(t, nil).client(t), t.Context()
	pods := client.CoreV1().Pods("default")
	for i, status := range []corev1.ConditionStatus{"True", "True", "True", "False"} {
		p := pod(fmt.Sprintf("web-%d", i+1), "node-1")
		p.Labels = map[string]string{"app": "web"}
		made, err := pods.Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}
		if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	two, half := intstr.FromInt32(2), intstr.FromString("50%")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	evict := func(name string) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	}
	if err := evict("web-1"); err != nil {
		t.Errorf("evicting the pod that can be spared: %v", err)
	}
	if p, err := pods.Get(ctx, "web-1", metav1.GetOptions{}); err != nil || p.DeletionTimestamp == nil {
		t.Errorf("the evicted pod is not on its way out: %v", err)
	}
	if err := evict("web-2"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting one of the last two gave %v, want 429", err)
	}
	if err := evict("web-4"); err != nil {
		t.Errorf("evicting a pod that is unready: %v", err)
	}
	if err := evict("web-5"); !apierrors.IsNotFound(err) {
		t.Errorf("evicting a pod that is not there gave %v", err)
	}
	got, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.MinAvailable = &half
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict("web-2"); !apierrors.IsBadRequest(err) {
		t.Errorf("a budget that is not understood gave %v, want 400", err)
	}
}
