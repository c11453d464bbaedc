package desired

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSourceRanges(t *testing.T) {
	ranges := func(r ...string) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = r }
	}
	node := map[netip.Addr]Reservation{netip.MustParseAddr("10.0.0.11"): ReservedAlways}
	for _, test := range []struct {
		name    string
		service *v1.Service
		want    string
		refused int
	}{
		{"no ranges", loadBalancerService(), "<nil>", 0},
		{"sorted and masked", loadBalancerService(ranges("198.51.100.77/24", " 10.9.0.0/16 ")), "&[10.9.0.0/16 198.51.100.0/24]", 0},
		{"nested ranges", loadBalancerService(ranges("198.51.100.0/24", "198.51.0.0/16", "198.51.100.0/24")), "&[198.51.0.0/16]", 0},
		{"all addresses", loadBalancerService(ranges("198.51.100.0/24", "0.0.0.0/0")), "<nil>", 0},
		{"range with a node address", loadBalancerService(ranges("10.0.0.0/24")), "&[10.0.0.0/24 203.0.113.10/32]", 0},
		{"invalid range allows no client", loadBalancerService(ranges("198.51.100.1")), "&[]", 1},
		{"invalid and valid range", loadBalancerService(ranges("x", "198.51.100.0/24")), "&[198.51.100.0/24]", 1},
		{"other family allows no client", loadBalancerService(ranges("2001:db8::/32", "::/0")), "&[]", 0},
	} {
		o := options()
		o.Reserved = node
		got := Compute(web, test.service, nil, o)
		if len(got.Refused) != test.refused || test.refused > 0 && got.Refused[0].Reason != BadSource {
			t.Errorf("%s: refused %v", test.name, got.Refused)
		}
		balanced := 0
		for _, v := range got.Virtuals {
			want := "<nil>" // cluster IPs and external IPs are never restricted
			if v.Origin == FromLoadBalancer {
				balanced++
				want = test.want
			}
			if text := fmt.Sprint(v.Clients); text != want {
				t.Errorf("%s: %v allows %s, want %s", test.name, v.Key, text, want)
			}
		}
		if balanced == 0 || balanced == len(got.Virtuals) {
			t.Errorf("%s: %d of %d virtual servers are of the load balancer", test.name, balanced, len(got.Virtuals))
		}
	}
}

// Some load balancers check the healthCheckNodePort at their own address; no other address answers there.
func TestHealthCheckPortIsOpenAtLoadBalancerAddress(t *testing.T) {
	for _, test := range []struct {
		policy v1.ServiceExternalTrafficPolicy
		port   int32
		want   uint16
	}{{v1.ServiceExternalTrafficPolicyLocal, 32000, 32000}, {v1.ServiceExternalTrafficPolicyCluster, 32000, 0},
		{v1.ServiceExternalTrafficPolicyLocal, 0, 0}, {v1.ServiceExternalTrafficPolicyLocal, 70000, 0}} {
		svc := loadBalancerService(external(test.policy), func(s *v1.Service) { s.Spec.HealthCheckNodePort = test.port })
		virtuals, balanced := Compute(web, svc, nil, options()).Virtuals, 0
		for _, v := range virtuals {
			want := uint16(0)
			if v.Origin == FromLoadBalancer {
				balanced++
				want = test.want
			}
			if v.Health != want {
				t.Errorf("policy %s, healthCheckNodePort %d: %v has %d open, want %d", test.policy, test.port, v.Key, v.Health, want)
			}
		}
		if balanced == 0 || balanced == len(virtuals) {
			t.Errorf("policy %s, healthCheckNodePort %d: %d of %d virtual servers are of the load balancer", test.policy, test.port, balanced, len(virtuals))
		}
	}
}
