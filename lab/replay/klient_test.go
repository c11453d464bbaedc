package replay_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"
)

// TestKlient makes the requests of scenarios with klient of e2e-framework.
func TestKlient(t *testing.T) {
	l := start(t, nil)
	client, err := klient.New(l.config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, res := t.Context(), client.Resources("default")

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	for _, o := range []k8s.Object{service("web", "10.96.0.10"), slice("web-1", "web", "node-1", "10.244.1.4"), pod("web-1", "node-1"), deployment} {
		if err := res.Create(ctx, o); err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
	if deployment.Generation != 1 || *deployment.Spec.Replicas != 1 {
		t.Errorf("deployment at generation %d with replicas %v", deployment.Generation, deployment.Spec.Replicas)
	}
	patch := k8s.Patch{PatchType: types.StrategicMergePatchType, Data: []byte(`{"spec":{"replicas":3}}`)}
	if err := res.Patch(ctx, deployment, patch); err != nil {
		t.Fatal(err)
	}
	if deployment.Generation != 2 || *deployment.Spec.Replicas != 3 {
		t.Errorf("patched deployment at generation %d with replicas %d", deployment.Generation, *deployment.Spec.Replicas)
	}
	var listed discoveryv1.EndpointSliceList
	if err := res.List(ctx, &listed, resources.WithLabelSelector(discoveryv1.LabelServiceName+"=web")); err != nil || len(listed.Items) != 1 {
		t.Errorf("list of slices: %d, error %v; want 1", len(listed.Items), err)
	}

	ready := pod("web-1", "node-1")
	ready.Status.Phase = corev1.PodRunning
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := res.UpdateStatus(ctx, ready); err != nil {
		t.Fatal(err)
	}
	soon := []wait.Option{wait.WithImmediate(), wait.WithInterval(10 * time.Millisecond), wait.WithTimeout(patience)}
	is := conditions.New(res)
	if err := wait.For(is.PodReady(pod("web-1", "")), soon...); err != nil {
		t.Errorf("waiting until the pod is ready: %v", err)
	}
	if err := res.Delete(ctx, ready, resources.WithGracePeriod(0)); err != nil {
		t.Fatal(err)
	}
	if err := wait.For(is.ResourceDeleted(ready), soon...); err != nil {
		t.Errorf("waiting until the pod is gone: %v", err)
	}
	if err := res.Get(ctx, "web-1", "default", &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of the deleted pod: %v, want not found", err)
	}
}
