//go:build linux

package guest

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// nextService waits for the next event about a Service.
func nextService(t *testing.T, w watch.Interface) *corev1.Service {
	t.Helper()
	e := replaytest.Next(t, w)
	v, is := e.Object.(*corev1.Service)
	if !is {
		t.Fatalf("event %s with %v, want a Service", e.Type, e.Object)
	}
	return v
}

// Each change reaches the API and is taken back: in the end the Service is what it was, the node ports included.
func TestPolicyChangesTheServiceAndPutsItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "policy", map[string]string{"replicas": "2"})
		scenario := find(t, "policy")
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
	})
}

// Where no load balancer is, the Service becomes one for a balancer, or gets node ports, and loses what that gave it afterwards.
func TestPolicyChangesTheTypeWhereLanesDoNotNeedIt(t *testing.T) {
	for target, c := range map[string]struct {
		set           map[string]string
		before, while corev1.ServiceType
	}{
		"nodePort":  {map[string]string{}, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer},
		"clusterIP": {map[string]string{"client": "node"}, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort},
	} {
		t.Run(target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.set["target"], c.set["changes"], c.set["replicas"] = target, "type", "2"
				s := newStage(t, "policy", c.set)
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.world.Nodes[0]},
					Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.11"}}}}
				if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				service := func() *corev1.Service {
					v, err := s.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				seen, err := s.client.CoreV1().Services("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web"})
				if err != nil {
					t.Fatal(err)
				}
				defer seen.Stop()
				play(t, s, "policy")
				was, last := false, service().ResourceVersion
				for v := nextService(t, seen); v.ResourceVersion != last; v = nextService(t, seen) {
					was = was || v.Spec.Type == c.while && v.Spec.Ports[0].NodePort != 0
				}
				after := service()
				if !was || after.Spec.Type != c.before || (after.Spec.Ports[0].NodePort != 0) != (c.before == corev1.ServiceTypeNodePort) {
					t.Errorf("the Service was a %s meanwhile: %v; in the end it is a %s with the ports %v, and was to be a %s", c.while, was,
						after.Spec.Type, after.Spec.Ports, c.before)
				}
			})
		})
	}
}

// The Service is gone in between with all that was known of its pods, and has its addresses and ports again in the end.
func TestRecreateMakesTheSameServiceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "recreate", map[string]string{"replicas": "2"})
		seen, err := s.client.DiscoveryV1().EndpointSlices("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer seen.Stop()
		play(t, s, "recreate")
		for gone := false; !gone; {
			e := replaytest.Next(t, seen)
			slice, is := e.Object.(*discoveryv1.EndpointSlice)
			gone = is && e.Type == watch.Deleted && slice.Labels[discoveryv1.LabelServiceName] == "web"
		}
		if steps := append(s.steps("delete the Service"), s.steps("create it again")...); !slices.Equal(steps, []string{"begin", "end", "begin", "end"}) {
			t.Errorf("the steps were %v", steps)
		}
		var told []string
		for _, e := range s.events {
			if b, is := e.Body.(record.Service); is {
				told = append(told, e.Object+" "+string(b.State))
			}
		}
		if !slices.Equal(told, []string{"default/web deleted", "default/web created"}) {
			t.Errorf("the record tells of %v", told)
		}
	})
}
