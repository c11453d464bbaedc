package replay_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// inBoth runs a test with a client that speaks JSON only and with one that prefers protobuf, as kube-proxy does.
func inBoth(t *testing.T, test func(*testing.T, lab, kubernetes.Interface)) {
	for name, form := range map[string]func(*rest.Config){"json": plainJSON, "protobuf": protobuf} {
		t.Run(name, func(t *testing.T) {
			l := start(t, nil)
			test(t, l, l.client(t, form))
		})
	}
}

func TestStoredObjectsAreUnchanged(t *testing.T) {
	inBoth(t, func(t *testing.T, _ lab, client kubernetes.Interface) {
		ctx := t.Context()
		made, err := client.CoreV1().Services("default").Create(ctx, service("web", "10.96.0.10"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.Year() != 2026 {
			t.Errorf("metadata of a new object is not complete: %+v", made.ObjectMeta)
		}
		if p := made.Spec.Ports[0]; p.Protocol != corev1.ProtocolTCP || p.TargetPort.IntValue() != 80 || made.Spec.Type != corev1.ServiceTypeClusterIP {
			t.Errorf("defaults are missing: %+v", made.Spec)
		}
		got, err := client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made, got); diff != "" {
			t.Errorf("get differs from create (-create +get):\n%s", diff)
		}
		list, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]corev1.Service{*made}, list.Items); diff != "" || list.ResourceVersion != made.ResourceVersion {
			t.Errorf("list at %s differs from create at %s (-create +list):\n%s", list.ResourceVersion, made.ResourceVersion, diff)
		}
	})
}

// kube-proxy dereferences the timeout without a nil check.
func TestSessionAffinityTimeout(t *testing.T) {
	inBoth(t, func(t *testing.T, _ lab, client kubernetes.Interface) {
		services := client.CoreV1().Services("default")
		if _, err := services.Create(t.Context(), service("web", "10.96.0.10"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for affinity, want := range map[string]*corev1.SessionAffinityConfig{
			"ClientIP": {ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}}, "None": nil,
		} {
			s, err := services.Patch(t.Context(), "web", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"sessionAffinity":%q}}`, affinity), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, s.Spec.SessionAffinityConfig); diff != "" {
				t.Errorf("sessionAffinity %s (-want +got):\n%s", affinity, diff)
			}
		}
	})
}

func TestRejectedRequests(t *testing.T) {
	l := start(t, nil)
	client := l.client(t)
	l.apply(t, service("web", "10.96.0.10"))
	services := client.CoreV1().Services("default")
	stale := service("web", "10.96.0.10")
	stale.ResourceVersion = "1"
	other := service("web", "10.96.0.10")
	other.UID = "other"
	nameless := service("", "10.96.0.10")
	typeless := slice("s", "web", "node-1")
	typeless.AddressType = ""
	strange := types.UID("strange")
	tests := map[string]struct {
		is func(error) bool
		do func(context.Context) error
	}{
		"get of what is not there": {apierrors.IsNotFound, func(ctx context.Context) error {
			_, err := services.Get(ctx, "none", metav1.GetOptions{})
			return err
		}},
		"create of what exists": {apierrors.IsAlreadyExists, func(ctx context.Context) error {
			_, err := services.Create(ctx, service("web", "10.96.0.11"), metav1.CreateOptions{})
			return err
		}},
		"create without a name": {apierrors.IsInvalid, func(ctx context.Context) error {
			_, err := services.Create(ctx, nameless, metav1.CreateOptions{})
			return err
		}},
		"create of a slice without address type": {apierrors.IsInvalid, func(ctx context.Context) error {
			_, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, typeless, metav1.CreateOptions{})
			return err
		}},
		"update of a stale version": {apierrors.IsConflict, func(ctx context.Context) error {
			_, err := services.Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}},
		"update of another uid": {apierrors.IsConflict, func(ctx context.Context) error {
			_, err := services.Update(ctx, other, metav1.UpdateOptions{})
			return err
		}},
		"update of what is not there": {apierrors.IsNotFound, func(ctx context.Context) error {
			_, err := services.Update(ctx, service("none", ""), metav1.UpdateOptions{})
			return err
		}},
		"patch with a stale version": {apierrors.IsConflict, func(ctx context.Context) error {
			_, err := services.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"}}`), metav1.PatchOptions{})
			return err
		}},
		"patch of a type that is not known": {apierrors.IsUnsupportedMediaType, func(ctx context.Context) error {
			_, err := services.Patch(ctx, "web", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{})
			return err
		}},
		"patch that makes the object unreadable": {apierrors.IsBadRequest, func(ctx context.Context) error {
			_, err := services.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"ports":7}}`), metav1.PatchOptions{})
			return err
		}},
		"dry run": {apierrors.IsBadRequest, func(ctx context.Context) error {
			_, err := services.Create(ctx, service("dry", ""), metav1.CreateOptions{DryRun: []string{"All"}})
			return err
		}},
		"delete of another uid": {apierrors.IsConflict, func(ctx context.Context) error {
			return services.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &strange}})
		}},
		"delete of what is not there": {apierrors.IsNotFound, func(ctx context.Context) error {
			return services.Delete(ctx, "none", metav1.DeleteOptions{})
		}},
		"resource that is not served": {apierrors.IsNotFound, func(ctx context.Context) error {
			_, err := client.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
			return err
		}},
		"field that cannot be selected": {apierrors.IsBadRequest, func(ctx context.Context) error {
			_, err := services.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=x"})
			return err
		}},
		"list of a version of the future": {apierrors.IsTimeout, func(ctx context.Context) error {
			_, err := services.List(ctx, metav1.ListOptions{ResourceVersion: "99"})
			return err
		}},
		"list of exactly an old version": {apierrors.IsResourceExpired, func(ctx context.Context) error {
			_, err := services.List(ctx, metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			return err
		}},
		"initial events without a match rule": {apierrors.IsInvalid, func(ctx context.Context) error {
			_, err := services.Watch(ctx, metav1.ListOptions{SendInitialEvents: new(true)})
			return err
		}},
	}
	before, _, _ := list(t, l, "/api/v1/services")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := test.do(ctx); !test.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if after, _, _ := list(t, l, "/api/v1/services"); after != before {
		t.Errorf("refused requests changed the store:\n%s\n%s", before, after)
	}
}

func list(t tb, l lab, path string) (body, contentType string, code int) {
	t.Helper()
	code, contentType, body = l.curl(t, http.MethodGet, path, "", "", "")
	return body, contentType, code
}

func TestSelectors(t *testing.T) {
	l := start(t, nil)
	client := l.client(t)
	l.apply(t, configMap("plain", nil))
	l.apply(t, configMap("headless", map[string]string{"service.kubernetes.io/headless": ""}))
	l.apply(t, configMap("other-proxy", map[string]string{"service.kubernetes.io/service-proxy-name": "x"}))
	l.apply(t, configMap("blue", map[string]string{"color": "blue"}))
	for selector, want := range map[string][]string{
		"":                               {"blue", "headless", "other-proxy", "plain"},
		"service.kubernetes.io/headless": {"headless"},
		"!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name": {"blue", "plain"},
		"color in (blue,red)": {"blue"},
		"color notin (blue)":  {"headless", "other-proxy", "plain"},
		"color=red":           nil,
	} {
		found, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range found.Items {
			names = append(names, c.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("selector %q (-want +got):\n%s", selector, diff)
		}
	}
	l.apply(t, pod("web-1", "node-1"))
	l.apply(t, pod("web-2", "node-2"))
	for selector, want := range map[string]int{
		"spec.nodeName=node-1": 1, "spec.nodeName!=node-1": 1, "metadata.name=web-2": 1, "status.phase=Pending": 2,
		"spec.nodeName=node-1,metadata.name=web-2": 0,
	} {
		found, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(found.Items) != want {
			t.Errorf("field selector %q: %d pods and error %v, want %d", selector, len(found.Items), err, want)
		}
	}
}

func TestUpdateKeepsServerManagedFields(t *testing.T) {
	inBoth(t, func(t *testing.T, _ lab, client kubernetes.Interface) {
		services := client.CoreV1().Services("default")
		made, err := services.Create(t.Context(), service("web", "10.96.0.10"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		same, err := services.Update(t.Context(), made.DeepCopy(), metav1.UpdateOptions{})
		if err != nil || same.ResourceVersion != made.ResourceVersion {
			t.Errorf("an update that changes nothing: version %s, error %v; want version %s", same.ResourceVersion, err, made.ResourceVersion)
		}
		change := service("web", "10.96.0.10")
		change.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		changed, err := services.Update(t.Context(), change, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := made.DeepCopy()
		want.Spec.SessionAffinity, want.ResourceVersion = corev1.ServiceAffinityClientIP, "3"
		want.Spec.SessionAffinityConfig = changed.Spec.SessionAffinityConfig // which has a test of its own
		if diff := cmp.Diff(want, changed); diff != "" {
			t.Errorf("after an unconditional update (-want +got):\n%s", diff)
		}
	})
}

func TestStatusSubresource(t *testing.T) {
	inBoth(t, func(t *testing.T, _ lab, client kubernetes.Interface) {
		services := client.CoreV1().Services("default")
		ingress := corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}}}
		draft := service("web", "10.96.0.10")
		draft.Status = ingress
		made, err := services.Create(t.Context(), draft, metav1.CreateOptions{})
		if err != nil || len(made.Status.LoadBalancer.Ingress) != 0 {
			t.Fatalf("create kept the status %v, error %v", made.Status, err)
		}
		made.Status, made.Spec.ClusterIP = ingress, "10.96.0.99"
		got, err := services.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.ClusterIP != "10.96.0.10" || cmp.Diff(ingress, got.Status) != "" {
			t.Errorf("status update gave spec %s, status %v", got.Spec.ClusterIP, got.Status)
		}
		if got, err = services.Update(t.Context(), service("web", "10.96.0.10"), metav1.UpdateOptions{}); err != nil || cmp.Diff(ingress, got.Status) != "" {
			t.Errorf("an update of the spec left status %v, error %v", got.Status, err)
		}
		patch := []byte(`{"status":{"loadBalancer":{"ingress":null}},"spec":{"type":"NodePort"}}`)
		got, err = services.Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil || len(got.Status.LoadBalancer.Ingress) != 0 || got.Spec.Type != corev1.ServiceTypeClusterIP {
			t.Errorf("status patch gave type %s, status %v, error %v", got.Spec.Type, got.Status, err)
		}
	})
}

func TestApplyWithoutStatusKeepsIt(t *testing.T) {
	l := start(t, nil)
	web := service("web", "10.96.0.10")
	web.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	l.apply(t, web)
	l.apply(t, &unstructured.Unstructured{Object: map[string]any{ // a typed Service always has one
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"clusterIP": "10.96.0.10", "ports": []any{map[string]any{"port": int64(81)}}},
	}})
	if _, _, body := l.curl(t, http.MethodGet, "/api/v1/services", "", "", ""); !strings.Contains(body, `"ip":"203.0.113.10"`) || !strings.Contains(body, `"port":81`) {
		t.Error(body)
	}
}

func TestPatches(t *testing.T) {
	l := start(t, nil)
	nodes := l.client(t).CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"a": "1", "b": "2"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}}}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := nodes.Patch(t.Context(), "node-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":null,"c":"3"}},"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, got.Labels); diff != "" || !got.Spec.Unschedulable {
		t.Errorf("merge patch: unschedulable %v, labels (-want +got):\n%s", got.Spec.Unschedulable, diff)
	}
	got, err = nodes.PatchStatus(t.Context(), "node-1", []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	states := fmt.Sprint(got.Status.Conditions[0].Status, " ", len(got.Status.Conditions))
	if states != "False 2" {
		t.Errorf("a strategic merge patch must change one condition by its type and keep the other, got %v", got.Status.Conditions)
	}
}

func TestServerSideApplyCreatesAndMerges(t *testing.T) {
	l := start(t, nil)
	maps := l.client(t).CoreV1().ConfigMaps("default")
	apply := func(data map[string]string) *corev1.ConfigMap {
		t.Helper()
		got, err := maps.Apply(t.Context(), corev1apply.ConfigMap("c", "default").WithData(data), metav1.ApplyOptions{FieldManager: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	apply(map[string]string{"a": "1"})
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, apply(map[string]string{"b": "2"}).Data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGracePeriodOfPods(t *testing.T) {
	inBoth(t, func(t *testing.T, l lab, client kubernetes.Interface) {
		pods := client.CoreV1().Pods("default")
		quick := pod("quick", "node-1")
		quick.Spec.TerminationGracePeriodSeconds = new(int64(5))
		for _, p := range []*corev1.Pod{pod("web", "node-1"), quick, pod("nowhere", "")} {
			if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]int64{"web": 30, "quick": 5} {
			if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			got, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			end := l.Now().Add(time.Duration(want) * time.Second)
			if *got.DeletionGracePeriodSeconds != want || !got.DeletionTimestamp.Time.Equal(end) {
				t.Errorf("%s: grace %d s until %s, want %d s until %s", name, *got.DeletionGracePeriodSeconds, got.DeletionTimestamp, want, end)
			}
		}
		if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(60))}); err != nil {
			t.Fatal(err)
		}
		if got, err := pods.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || *got.DeletionGracePeriodSeconds != 30 {
			t.Errorf("a longer grace period replaced a running one: %v, error %v", got.DeletionGracePeriodSeconds, err)
		}
		if err := pods.Delete(t.Context(), "nowhere", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), "web", *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		left, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 1 || left.Items[0].Name != "quick" {
			t.Errorf("pods left: %v, error %v; want quick", left.Items, err)
		}
	})
}

func TestFinalizersDelayDeletion(t *testing.T) {
	l := start(t, nil)
	maps := l.client(t).CoreV1().ConfigMaps("default")
	held := configMap("held", nil)
	held.Finalizers = []string{"hitless.test/hold"}
	l.apply(t, held)
	if err := maps.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := maps.Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("deleted with a finalizer: deletionTimestamp %v, error %v", got.DeletionTimestamp, err)
	}
	got.Finalizers = nil
	if _, err := maps.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer was removed: %v, want not found", err)
	}
}

func TestDeleteCollection(t *testing.T) {
	l := start(t, nil)
	slices := l.client(t).DiscoveryV1().EndpointSlices("default")
	for i, service := range []string{"a", "a", "b"} {
		l.apply(t, slice(fmt.Sprintf("s-%d", i), service, "node-1"))
	}
	err := slices.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=a"})
	if err != nil {
		t.Fatal(err)
	}
	left, err := slices.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "s-2" {
		t.Errorf("left: %v, error %v; want s-2", left.Items, err)
	}
}

func TestGeneratedNamesAndEvents(t *testing.T) {
	inBoth(t, func(t *testing.T, _ lab, client kubernetes.Interface) {
		draft := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-1."}, EventTime: metav1.NowMicro(),
			Reason: "Starting", Action: "StartKubeProxy", Type: "Normal", ReportingController: "kube-proxy"}
		first, err := client.EventsV1().Events("default").Create(t.Context(), draft, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := client.EventsV1().Events("default").Create(t.Context(), draft, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if first.Name != "node-1.bbbbc" || second.Name != "node-1.bbbbd" {
			t.Errorf("generated names %s and %s, want them counted", first.Name, second.Name)
		}
	})
}
