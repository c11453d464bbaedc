package balancer

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A Service has the finalizer as long as it has a load balancer, and others of its finalizers stay.
func TestFinalizers(t *testing.T) {
	now, class := metav1.Now(), "other"
	const other = "example.test/other"
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   []string
	}{
		"a new load balancer": {func(s *corev1.Service) {}, []string{other, cleanupFinalizer}},
		"of another class":    {func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }, []string{other}},
		"no load balancer":    {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }, []string{other}},
		"none any more": {func(s *corev1.Service) {
			s.Spec.Type, s.Finalizers = corev1.ServiceTypeClusterIP, []string{cleanupFinalizer, other}
		}, []string{other}},
		"deleted": {func(s *corev1.Service) {
			s.DeletionTimestamp, s.Finalizers = &now, []string{other, cleanupFinalizer}
		}, []string{other}},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", Finalizers: []string{other}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		test.change(svc)
		client := fake.NewClientset(svc)
		f := newFinalizers(client, slog.New(slog.DiscardHandler))
		f.observe(svc, false)
		if f.writeAll(t.Context()) || len(f.pending) > 0 {
			t.Errorf("%s: %d writes are pending", name, len(f.pending))
		}
		got, err := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || !slices.Equal(got.Finalizers, test.want) {
			t.Errorf("%s: the finalizers are %q, %v; want %q", name, got.Finalizers, err, test.want)
		}
	}
}
