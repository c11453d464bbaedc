package desired

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// arbitrary generates valid and invalid API objects.
type arbitrary struct{ *rapid.T }

func (a arbitrary) address() string {
	return rapid.SampledFrom([]string{"", "None", "x", "10.96.0.10", "10.96.0.11", "203.0.113.10", "fd00:96::10", "2001:db8::10", "127.0.0.1", "127.8.8.8",
		"::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "0.1.2.3",
		"10.0.0.11", "fd00:10::11", "10.0.0.13", "::ffff:10.0.0.11", "::ffff:127.0.0.1", "010.0.0.1", "10.96.0.10/32", " 10.96.0.10"}).Draw(a.T, "address")
}

func (a arbitrary) port() int32 {
	return rapid.SampledFrom([]int32{-1, 0, 1, 53, 80, 80, 65535, 65536, 1 << 30}).Draw(a.T, "port")
}

func (a arbitrary) addresses() []string {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return arbitrary{t}.address() }), 0, 3).Draw(a.T, "addresses")
}

func (a arbitrary) protocol() v1.Protocol {
	return rapid.SampledFrom([]v1.Protocol{"", "TCP", "UDP", "SCTP", "tcp", "QUIC"}).Draw(a.T, "protocol")
}

func (a arbitrary) service() *v1.Service {
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	s.Spec.Type = rapid.SampledFrom([]v1.ServiceType{"", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "?"}).Draw(a.T, "type")
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.ExternalIPs = a.address(), a.addresses(), a.addresses()
	s.Spec.LoadBalancerSourceRanges = rapid.SliceOfN(rapid.SampledFrom([]string{"", "x", "10.0.0.0/8", "0.0.0.0/0", "1.2.3.4/33", "::ffff:1.2.3.4/128", "10.1.0.0/16"}), 0, 3).Draw(a.T, "ranges")
	for _, ip := range a.addresses() {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: ip, Hostname: "h"})
	}
	for range rapid.IntRange(0, 4).Draw(a.T, "ports") {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: rapid.SampledFrom([]string{"", "http"}).Draw(a.T, "name"), Protocol: a.protocol(), Port: a.port(), NodePort: a.port()})
	}
	s.Spec.HealthCheckNodePort = a.port()
	s.Spec.ExternalTrafficPolicy = rapid.SampledFrom([]v1.ServiceExternalTrafficPolicy{"", "Local", "Cluster", "?"}).Draw(a.T, "policy")
	s.Spec.SessionAffinity = rapid.SampledFrom([]v1.ServiceAffinity{"", "None", "ClientIP", "?"}).Draw(a.T, "affinity")
	if rapid.Bool().Draw(a.T, "configured") {
		seconds := a.port()
		s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	return s
}

func (a arbitrary) slice() *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
	s.AddressType = rapid.SampledFrom([]discovery.AddressType{"IPv4", "IPv6", "FQDN", ""}).Draw(a.T, "kind")
	for range rapid.IntRange(0, 3).Draw(a.T, "target ports") {
		p := discovery.EndpointPort{}
		if rapid.Bool().Draw(a.T, "numbered") {
			n := a.port()
			p.Port = &n
		}
		if rapid.Bool().Draw(a.T, "named") {
			name, protocol := "http", a.protocol()
			p.Name, p.Protocol = &name, &protocol
		}
		s.Ports = append(s.Ports, p)
	}
	for range rapid.IntRange(0, 3).Draw(a.T, "endpoints") {
		yes := rapid.Bool().Draw(a.T, "ready")
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: a.addresses(), Conditions: discovery.EndpointConditions{Ready: &yes}})
	}
	return s
}

// For arbitrary API objects, only addresses of the Service are programmed, never reserved ones, and everything that
// is left out is refused by name.
func TestComputeOfArbitraryObjects(t *testing.T) {
	o := options()
	o.IPv6, o.NodePortAddrs = true, addrs("10.0.0.11", "fd00:10::11")
	o.Reserved = map[netip.Addr]Reservation{}
	for _, a := range append(addrs("10.0.0.12", "127.0.0.1"), o.NodePortAddrs...) {
		o.Reserved[a] = ReservedAlways
	}
	o.Reserved[netip.MustParseAddr("10.0.0.13")] = ReservedExceptClusterIPs
	rapid.Check(t, func(t *rapid.T) {
		service := arbitrary{t}.service()
		var all []*discovery.EndpointSlice
		for range rapid.IntRange(0, 2).Draw(t, "slices") {
			all = append(all, arbitrary{t}.slice())
		}
		got := Compute(web, service, all, o)
		own := append([]string{service.Spec.ClusterIP}, slices.Concat(service.Spec.ClusterIPs, service.Spec.ExternalIPs)...)
		for _, in := range service.Status.LoadBalancer.Ingress {
			own = append(own, in.IP)
		}
		seen := map[string]bool{}
		for _, v := range got.Virtuals {
			if seen[v.Key.String()] {
				t.Fatalf("%v twice", v.Key)
			}
			seen[v.Key.String()] = true
			if v.Origin == FromNodePort != slices.Contains(o.NodePortAddrs, v.Addr) {
				t.Fatalf("%v comes from %v", v.Key, v.Origin)
			}
			if v.Origin != FromNodePort && !slices.Contains(own, v.Addr.String()) {
				t.Fatalf("%v is not an address of the Service, which has %v", v.Key, own)
			}
			if v.Port == 0 || v.Affinity < 0 || v.Affinity != 0 && service.Spec.SessionAffinity != "ClientIP" {
				t.Fatalf("%+v", v.Virtual)
			}
			check := []netip.Addr{v.Addr}
			for i, r := range v.Reals {
				check = append(check, r.Addr())
				if r.Port() == 0 || r.Addr().Is4() != v.Addr.Is4() || i > 0 && v.Reals[i-1].Compare(r) >= 0 {
					t.Fatalf("%v has the real servers %v", v.Key, v.Reals)
				}
			}
			for _, a := range check {
				if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() || a.Zone() != "" {
					t.Fatalf("%v, with the real servers %v", v.Key, v.Reals)
				}
			}
		}
		for i, r := range got.Refused {
			if r.Service != web || r.Reason == "" || strings.TrimSpace(r.Detail) == "" || i > 0 && got.Refused[i-1] == r {
				t.Fatalf("refused %v", got.Refused)
			}
		}
	})
}
