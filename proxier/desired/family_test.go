package desired

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

func dual(s *v1.Service) {
	s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:96::10"}
	s.Spec.ExternalIPs = []string{"2001:db8::20"}
}

func slice6(endpoints ...discovery.Endpoint) *discovery.EndpointSlice {
	s := slice(endpoints...)
	s.AddressType = discovery.AddressTypeIPv6
	return s
}

// Each family selects among its own endpoints.
func TestDualStack(t *testing.T) {
	slices := []*discovery.EndpointSlice{
		slice(endpointOn("node-1", "10.244.1.1", "ready"), endpointOn("node-2", "10.244.2.1", "ready")),
		slice6(endpointOn("node-1", "fd00:244::1", "draining")),
	}
	o := options()
	o.IPv6, o.NodePortAddrs = true, addrs("10.0.0.11", "fd00:10::11")
	got := Compute(web, loadBalancerService(dual, nodePorts(30080)), slices, o)
	want := `
10.96.0.10:80/tcp off-cluster 10.244.1.1 10.244.2.1
[fd00:96::10]:80/tcp off-cluster fd00:244::1
203.0.113.10:80/tcp masquerade 10.244.1.1 10.244.2.1
[2001:db8::20]:80/tcp masquerade fd00:244::1
10.0.0.11:30080/tcp masquerade 10.244.1.1 10.244.2.1
[fd00:10::11]:30080/tcp masquerade fd00:244::1
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), format(got)); diff != "" || len(got.Refused) > 0 {
		t.Errorf("virtual servers (-want +got):\n%s\nrefused %v", diff, got.Refused)
	}
}

func TestMismatchedFamiliesAreRefused(t *testing.T) {
	four := []*discovery.EndpointSlice{slice(endpointOn("node-1", "10.244.1.1", "ready"))}
	for _, test := range []struct {
		name     string
		service  *v1.Service
		ipv6     bool
		reason   Reason
		virtuals int
	}{
		{"node without IPv6", loadBalancerService(dual, func(s *v1.Service) { s.Spec.ExternalIPs = nil }), false, NoIPv6, 2},
		{"external IP of a family without a cluster IP", loadBalancerService(func(s *v1.Service) { s.Spec.ExternalIPs = []string{"2001:db8::20"} }), true, FamilyMismatched, 2},
		{"IPv6 loopback", loadBalancerService(dual, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"::1"} }), true, BadAddress, 3},
		{"IPv6 link-local", loadBalancerService(dual, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"fe80::1"} }), true, BadAddress, 3},
		{"IPv6 zone", loadBalancerService(dual, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"2001:db8::20%eth0"} }), true, BadAddress, 3},
		{"IPv6 multicast", loadBalancerService(dual, func(s *v1.Service) { s.Spec.ExternalIPs = []string{"ff02::1"} }), true, BadAddress, 3},
	} {
		o := options()
		o.IPv6 = test.ipv6
		got := Compute(web, test.service, four, o)
		if len(got.Refused) != 1 || got.Refused[0].Reason != test.reason || len(got.Virtuals) != test.virtuals {
			t.Errorf("%s: refused %v, want one of %s; %d virtual servers, want %d:\n%s", test.name, got.Refused, test.reason, len(got.Virtuals), test.virtuals, format(got))
		}
	}
}

// A dual-stack pod counts once, and an IPv6-only Service has a health check too.
func TestHealthCheckOfBothFamilies(t *testing.T) {
	slices := []*discovery.EndpointSlice{slice(endpointOn("node-1", "10.244.1.1", "ready")), slice6(endpointOn("node-1", "fd00:244::1", "ready"))}
	alone := func(s *v1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00:96::10", nil }
	for name, service := range map[string]*v1.Service{"both": loadBalancerService(dual, external("Local")), "IPv6": loadBalancerService(alone, external("Local"))} {
		o := options()
		o.IPv6 = true
		if got := Compute(web, service, slices, o); got.HealthCheck == nil || len(got.HealthCheck.Local) != 1 {
			t.Errorf("%s: health check %+v, want one local pod", name, got.HealthCheck)
		}
	}
}
