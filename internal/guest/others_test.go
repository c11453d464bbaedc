//go:build linux

package guest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/scenarios"
)

// others returns how many other Services the stage has, and how many endpoints they have. Each Service has a cluster IP.
func (s *stage) others(t *testing.T) (services, endpoints int) {
	t.Helper()
	all, err := s.client.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, service := range all.Items {
		if !strings.HasPrefix(service.Name, "other-") {
			continue
		}
		services++
		if ip := service.Spec.ClusterIP; ip == "" || seen[ip] {
			t.Errorf("the Service %s has the cluster IP %q", service.Name, ip)
		}
		seen[service.Spec.ClusterIP] = true
		list, err := s.client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
		if err != nil {
			t.Fatal(err)
		}
		for _, slice := range list.Items {
			endpoints += len(slice.Endpoints)
		}
	}
	return services, endpoints
}

// The other Services exist before the baseline, each with endpoints. Without the key there is none, and the run has the same steps.
func TestOtherServicesExistDuringTheScenario(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some, none := runQuiet(t, map[string]string{"others": "300"}, nil), runQuiet(t, nil, nil)
		if services, endpoints := some.others(t); services != 300 || endpoints < services {
			t.Errorf("%d other Services with %d endpoints, want 300 with one or more each", services, endpoints)
		}
		if services, _ := none.others(t); services != 0 {
			t.Errorf("without the key there are %d other Services", services)
		}
		for s, want := range map[*stage]bool{some: true, none: false} {
			var created, baseline int
			for i, e := range s.events {
				switch {
				case strings.Contains(e.Object, "other Services"):
					created = i
				case e.Object == "baseline":
					baseline = i
				}
			}
			if (created > 0) != want || created > baseline {
				t.Errorf("the step is event %d and the baseline event %d; there is a step: want %v", created, baseline, want)
			}
		}
	})
}

// A proxy that does not program them makes the run invalid before it is measured.
func TestAProxyWithoutTheOtherServicesIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "quiet", map[string]string{"others": "3"})
		s.over = func(node string, answers bool) bool { return answers && node == "node-1" }
		err := scenarios.Run(context.Background(), find(t, "quiet"), &s.world)
		if err == nil || !strings.Contains(err.Error(), "node-2") {
			t.Errorf("the run ended with %v, want an error that names node-2", err)
		}
		if len(s.steps("disturb nothing")) > 0 {
			t.Error("the scenario ran")
		}
	})
}

// A live cluster has Services of its own.
func TestALiveClusterHasNoOtherServices(t *testing.T) {
	offers := slices.DeleteFunc(Offers("replay", "vm"), func(c scenarios.Capability) bool { return c == scenarios.ManyServices })
	if _, _, err := scenarios.Select("quiet", offers, map[string]string{"others": "20"}); !slices.Equal(scenarios.Lacking(err), []scenarios.Capability{scenarios.ManyServices}) {
		t.Errorf("a site without room for them: %v", err)
	}
	for _, value := range []string{"-1", "10001", "many"} {
		if _, _, err := scenarios.Select("quiet", Offers("replay", "vm"), map[string]string{"others": value}); err == nil {
			t.Errorf("others=%s is accepted", value)
		}
	}
}
