package guest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios"
)

// Each change reaches the API and is taken back: in the end the Service is what it was, the node ports included.
func TestPolicyChangesTheServiceAndPutsItBack(t *testing.T) {
	s := newStage(t, "policy", map[string]string{"replicas": "2"})
	scenario, err := scenarios.Find("policy")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	seen, err := s.client.CoreV1().Services("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	var specs []corev1.ServiceSpec
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for e := range seen.ResultChan() {
			if v, is := e.Object.(*corev1.Service); is && v.Name == "web" && v.Spec.ClusterIP != "" && len(v.Status.LoadBalancer.Ingress) > 0 {
				specs = append(specs, v.Spec)
			}
		}
	}()
	if err := scenarios.Run(ctx, scenario, &s.world); err != nil {
		t.Fatal(err)
	}
	last, err := s.client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen.Stop()
	<-collected
	for what, holds := range map[string]func(v corev1.ServiceSpec) bool{
		"externalTrafficPolicy: Local": func(v corev1.ServiceSpec) bool {
			return v.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		},
		"a health check port": func(v corev1.ServiceSpec) bool { return v.HealthCheckNodePort != 0 },
		"internalTrafficPolicy: Local": func(v corev1.ServiceSpec) bool {
			return v.InternalTrafficPolicy != nil && *v.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		},
		"affinity":      func(v corev1.ServiceSpec) bool { return v.SessionAffinity == corev1.ServiceAffinityClientIP },
		"source ranges": func(v corev1.ServiceSpec) bool { return len(v.LoadBalancerSourceRanges) == 2 },
		"a second port": func(v corev1.ServiceSpec) bool { return len(v.Ports) == 2 },
	} {
		if !slices.ContainsFunc(specs, holds) {
			t.Errorf("the Service never had %s", what)
		}
		if holds(last.Spec) {
			t.Errorf("the Service still has %s", what)
		}
	}
	if len(specs) > 0 && last.Spec.Ports[0] != specs[0].Ports[0] {
		t.Errorf("the port was %+v and is %+v", specs[0].Ports[0], last.Spec.Ports[0])
	}
	if ended := slices.DeleteFunc(append(s.steps("change "), s.steps("put back ")...), func(state string) bool { return state != "end" }); len(ended) != 10 {
		t.Errorf("%d changes ended, want 5 and 5 back", len(ended))
	}
}
