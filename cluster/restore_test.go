package cluster

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

// proxySet is a DaemonSet with an image that a run has set.
func proxySet() *appsv1.DaemonSet {
	restore := Restore{Run: "hitless-upgrade-x", Images: map[string]Image{"kube-proxy": {Was: "proxy:1", Set: "proxy:2"}}}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system", ResourceVersion: "7", Annotations: restore.Annotations()},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: "proxy:2"}}}}}}
}

// imageAfterRestore restores the DaemonSet. change is somebody else's change of it before the first write of the restore.
func imageAfterRestore(t *testing.T, change func(*appsv1.DaemonSet)) string {
	t.Helper()
	client, sets := fake.NewClientset(proxySet()), schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	client.PrependReactor("patch", "daemonsets", func(a kubetesting.Action) (bool, runtime.Object, error) {
		if change == nil {
			return false, nil, nil
		}
		d := proxySet()
		change(d)
		change, d.ResourceVersion = nil, "8"
		if err := client.Tracker().Update(sets, d, d.Namespace); err != nil {
			t.Error(err)
		}
		var patch struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(a.(kubetesting.PatchAction).GetPatch(), &patch); err != nil || patch.Metadata.ResourceVersion == "" {
			return false, nil, err // an API server applies a patch without a version to whatever there is
		}
		return true, nil, apierrors.NewConflict(sets.GroupResource(), d.Name, nil)
	})
	c := &Cluster{Client: client}
	all, err := c.ChangedDaemonSets(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := c.Restore(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	d, err := client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, has := d.Annotations[RestoreAnnotation]; has {
		t.Error("the annotation was not removed")
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// An image that somebody else sets at the same time stays; any other change does not keep the image from being restored.
func TestRestoredDaemonSetKeepsChangesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   string
	}{
		"nobody else":   {nil, "proxy:1"},
		"another image": {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "proxy:3" }, "proxy:3"},
		"a label":       {func(d *appsv1.DaemonSet) { d.Labels = map[string]string{"tier": "system"} }, "proxy:1"},
		"restored":      {func(d *appsv1.DaemonSet) { d.Annotations, d.Spec.Template.Spec.Containers[0].Image = nil, "proxy:1" }, "proxy:1"},
	} {
		if got := imageAfterRestore(t, c.change); got != c.want {
			t.Errorf("%s: the image is %s, want %s", name, got, c.want)
		}
	}
}
