package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func options() Options {
	return Options{Node: "node-1", Scheduler: "rr", TerminatingFallback: true}
}

// loadBalancerService returns a Service of type LoadBalancer with a cluster IP, an ingress IP, an external IP and one
// port.
func loadBalancerService(change ...func(*v1.Service)) *v1.Service {
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	s.Spec.Type = v1.ServiceTypeLoadBalancer
	s.Spec.ClusterIP = "10.96.0.10"
	s.Spec.ExternalIPs = []string{"203.0.113.20"}
	s.Spec.Ports = []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}
	s.Spec.HealthCheckNodePort = 30123
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	for _, f := range change {
		f(s)
	}
	return s
}

func external(p v1.ServiceExternalTrafficPolicy) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = p }
}

func internal(p v1.ServiceInternalTrafficPolicy) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.InternalTrafficPolicy = &p }
}

func slice(endpoints ...discovery.Endpoint) *discovery.EndpointSlice {
	name, port, protocol := "http", int32(8080), v1.ProtocolTCP
	return &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, AddressType: discovery.AddressTypeIPv4,
		Ports: []discovery.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}, Endpoints: endpoints}
}

// endpointOn returns an endpoint in a state: ready, unready, draining (terminating, serving) or dying (terminating).
func endpointOn(node, addr, state string) discovery.Endpoint {
	is := func(b bool) *bool { return &b }
	return discovery.Endpoint{Addresses: []string{addr}, NodeName: &node, Conditions: discovery.EndpointConditions{
		Ready: is(state == "ready"), Serving: is(state == "ready" || state == "draining"),
		Terminating: is(state == "draining" || state == "dying")}}
}

// format prints the virtual servers of a Service, one per line: address, recording set, real servers.
func format(s Service) string {
	var b strings.Builder
	for _, v := range s.Virtuals {
		fmt.Fprintf(&b, "%v %s", v.Key, v.Source)
		for _, r := range v.Reals {
			fmt.Fprintf(&b, " %v", r.Addr())
		}
		if v.Drop {
			b.WriteString(" drop")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTrafficPolicyAndTerminatingEndpoints(t *testing.T) {
	local, remote := "node-1", "node-2"
	for _, test := range []struct {
		name      string
		service   *v1.Service
		endpoints []discovery.Endpoint
		before126 bool
		cluster   string // endpoints of the cluster IP, or drop
		balancer  string // endpoints of the load balancer's address, or drop
	}{
		{"ready endpoints of all nodes", loadBalancerService(), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "ready"), endpointOn(remote, "10.244.2.1", "ready"), endpointOn(remote, "10.244.2.2", "unready")},
			false, "10.244.1.1 10.244.2.1", "10.244.1.1 10.244.2.1"},
		{"terminating endpoints are not used while one is ready", loadBalancerService(), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "draining"), endpointOn(remote, "10.244.2.1", "ready")},
			false, "10.244.2.1", "10.244.2.1"},
		{"terminating endpoints if none is ready", loadBalancerService(), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "draining"), endpointOn(remote, "10.244.2.1", "dying"), endpointOn(remote, "10.244.2.2", "unready")},
			false, "10.244.1.1", "10.244.1.1"},
		{"terminating endpoints that do not serve are never used", loadBalancerService(), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "dying")}, false, "", ""},
		{"no endpoint: refused, under policy Local too", loadBalancerService(external("Local")), nil, false, "", ""},
		{"Local: endpoints of the node", loadBalancerService(external("Local")), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "ready"), endpointOn(remote, "10.244.2.1", "ready")},
			false, "10.244.1.1 10.244.2.1", "10.244.1.1"},
		{"Local: without a local endpoint dropped, never forwarded", loadBalancerService(external("Local")), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "dying"), endpointOn(remote, "10.244.2.1", "ready")},
			false, "10.244.2.1", "drop"},
		{"Local falls back independently of Cluster (KEP-1669)", loadBalancerService(external("Local")), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "draining"), endpointOn(remote, "10.244.2.1", "ready")},
			false, "10.244.2.1", "10.244.1.1"},
		{"Local without fallback, as before 1.26", loadBalancerService(external("Local")), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "draining"), endpointOn(remote, "10.244.2.1", "ready")},
			true, "10.244.2.1", "drop"},
		{"Cluster without fallback, as before 1.26", loadBalancerService(), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "draining")}, true, "", ""},
		{"internal Local", loadBalancerService(internal("Local")), []discovery.Endpoint{endpointOn(local, "10.244.1.1", "ready"), endpointOn(remote, "10.244.2.1", "ready")},
			false, "10.244.1.1", "10.244.1.1 10.244.2.1"},
		{"internal Local without a local endpoint", loadBalancerService(internal("Local")), []discovery.Endpoint{endpointOn(remote, "10.244.2.1", "ready")}, false, "drop", "10.244.2.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := options()
			o.TerminatingFallback = !test.before126
			got := Compute(web, test.service, []*discovery.EndpointSlice{slice(test.endpoints...)}, o)
			outside := "masquerade"
			if test.service.Spec.ExternalTrafficPolicy == "Local" {
				outside = "from-node"
			}
			line := func(addr, source, reals string) string {
				return strings.TrimRight(addr+":80/tcp "+source+" "+reals, " ") + "\n"
			}
			want := line("10.96.0.10", "off-cluster", test.cluster) + line("203.0.113.10", outside, test.balancer) + line("203.0.113.20", outside, test.balancer)
			if diff := cmp.Diff(want, format(got)); diff != "" {
				t.Errorf("virtual servers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsetConditions(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		name       string
		conditions discovery.EndpointConditions
		used       bool
	}{
		{"no condition set: ready", discovery.EndpointConditions{}, true},
		{"not ready, serving unknown", discovery.EndpointConditions{Ready: &no}, false},
		{"not ready, serving, terminating unknown", discovery.EndpointConditions{Ready: &no, Serving: &yes}, false},
		{"ready although terminating (publishNotReadyAddresses)", discovery.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &yes}, true},
		{"terminating, serving unknown", discovery.EndpointConditions{Ready: &no, Terminating: &yes}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := discovery.Endpoint{Addresses: []string{"10.244.1.1"}, Conditions: test.conditions}
			got := Compute(web, loadBalancerService(), []*discovery.EndpointSlice{slice(e)}, options())
			if used := len(got.Virtuals[0].Reals) == 1; used != test.used {
				t.Errorf("endpoint used: %v, want %v", used, test.used)
			}
		})
	}
}

// A duplicate address counts in its better state, for example while it moves between slices.
func TestDuplicateEndpointAddress(t *testing.T) {
	for _, order := range [][2]string{{"dying", "ready"}, {"ready", "dying"}, {"unready", "draining"}, {"draining", "unready"}} {
		one, two := slice(endpointOn("node-1", "10.244.1.1", order[0])), slice(endpointOn("node-1", "10.244.1.1", order[1]))
		got := Compute(web, loadBalancerService(), []*discovery.EndpointSlice{one, two}, options())
		if want := []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:8080")}; !slices.Equal(got.Virtuals[0].Reals, want) {
			t.Errorf("listed as %v: served by %v, want %v", order, got.Virtuals[0].Reals, want)
		}
	}
}

// Only a terminating endpoint that no longer serves has terminated; an unready one has not, whatever else is listed
// for its address.
func TestTerminatedEndpoints(t *testing.T) {
	for _, test := range []struct {
		states []string
		ended  bool
	}{{[]string{"unready"}, false}, {[]string{"draining"}, false}, {[]string{"dying"}, true}, {[]string{"dying", "unready"}, false}, {[]string{"unready", "dying"}, false}} {
		endpoints := []discovery.Endpoint{endpointOn("node-1", "10.244.1.2", "ready")}
		for _, state := range test.states {
			endpoints = append(endpoints, endpointOn("node-1", "10.244.1.1", state))
		}
		got := Compute(web, loadBalancerService(), []*discovery.EndpointSlice{slice(endpoints...)}, options()).Virtuals[0].Draining
		if want := []DrainingEndpoint{{Addr: netip.MustParseAddrPort("10.244.1.1:8080"), Terminated: test.ended}}; !slices.Equal(got, want) {
			t.Errorf("listed as %v: draining %v, want %v", test.states, got, want)
		}
	}
}

func TestHealthCheckCountsReadyLocalPods(t *testing.T) {
	endpoints := []discovery.Endpoint{endpointOn("node-1", "10.244.1.1", "ready"), endpointOn("node-1", "10.244.1.2", "ready"),
		endpointOn("node-1", "10.244.1.3", "draining"), endpointOn("node-2", "10.244.2.1", "ready")}
	second := func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "http", Port: 81})
	}
	for _, test := range []struct {
		name      string
		service   *v1.Service
		endpoints []discovery.Endpoint
		want      *HealthCheck
	}{
		{"each pod once over all ports", loadBalancerService(external("Local"), second), endpoints,
			&HealthCheck{30123, []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.1.2")}}},
		{"only terminating pods left", loadBalancerService(external("Local")), endpoints[2:], &HealthCheck{Port: 30123}},
		{"policy Cluster has none", loadBalancerService(), endpoints, nil},
		{"other types have none", loadBalancerService(external("Local"), func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP }), endpoints, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Compute(web, test.service, []*discovery.EndpointSlice{slice(test.endpoints...)}, options())
			if diff := cmp.Diff(test.want, got.HealthCheck, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("health check (-want +got):\n%s", diff)
			}
		})
	}
}

// Each invalid part of an object is refused once with its reason; all other parts are programmed.
func TestInvalidObjectsAreRefused(t *testing.T) {
	good := endpointOn("node-1", "10.244.1.1", "ready")
	balancerAt := func(ip string) func(*v1.Service) {
		return func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: ip}} }
	}
	ports := func(p ...v1.ServicePort) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, p...) }
	}
	reserved := options()
	reserved.NodePortAddrs = addrs("10.0.0.12")
	reserved.Reserved = map[netip.Addr]Reservation{netip.MustParseAddr("10.0.0.11"): ReservedAlways, netip.MustParseAddr("10.0.0.13"): ReservedExceptClusterIPs}
	for _, test := range []struct {
		name     string
		service  *v1.Service
		endpoint discovery.Endpoint
		reason   Reason
		virtuals int
	}{
		{"loopback", loadBalancerService(balancerAt("127.0.0.1")), good, BadAddress, 2},
		{"link-local", loadBalancerService(balancerAt("169.254.169.254")), good, BadAddress, 2},
		{"multicast", loadBalancerService(balancerAt("224.0.0.1")), good, BadAddress, 2},
		{"unspecified", loadBalancerService(balancerAt("0.0.0.0")), good, BadAddress, 2},
		{"this network", loadBalancerService(balancerAt("0.1.2.3")), good, BadAddress, 2},
		{"broadcast", loadBalancerService(balancerAt("255.255.255.255")), good, BadAddress, 2},
		{"IPv4 in IPv6", loadBalancerService(balancerAt("::ffff:10.0.0.11")), good, BadAddress, 2},
		{"leading zero", loadBalancerService(balancerAt("010.0.0.1")), good, BadAddress, 2},
		{"node address as a cluster IP", loadBalancerService(func(s *v1.Service) { s.Spec.ClusterIP = "10.0.0.11" }), good, BadAddress, 2},
		{"on a device for virtual addresses", loadBalancerService(balancerAt("10.0.0.13")), good, BadAddress, 2},
		{"node address", loadBalancerService(balancerAt("10.0.0.11")), good, BadAddress, 2},
		{"duplicate port", loadBalancerService(ports(v1.ServicePort{Name: "again", Port: 80})), good, DuplicatePort, 3},
		{"unknown protocol", loadBalancerService(ports(v1.ServicePort{Name: "x", Port: 99, Protocol: "QUIC"})), good, UnknownProtocol, 3},
		{"NodePort too high", loadBalancerService(nodePorts(65536)), good, BadPort, 3},
		{"duplicate NodePort", loadBalancerService(nodePorts(30080), ports(v1.ServicePort{Name: "http", Port: 81, NodePort: 30080})), good, DuplicatePort, 7},
		{"port 0", loadBalancerService(ports(v1.ServicePort{Name: "x"})), good, BadPort, 3},
		{"port too high", loadBalancerService(ports(v1.ServicePort{Name: "x", Port: 65536})), good, BadPort, 3},
		{"endpoint without address", loadBalancerService(), discovery.Endpoint{}, BadEndpoint, 3},
		{"endpoint on loopback", loadBalancerService(), endpointOn("node-1", "127.0.0.1", "ready"), BadEndpoint, 3},
		{"endpoint link-local", loadBalancerService(), endpointOn("node-1", "169.254.1.1", "ready"), BadEndpoint, 3},
		{"endpoint without an IP address", loadBalancerService(), endpointOn("node-1", "pod", "ready"), BadEndpoint, 3},
		{"endpoint of the other family", loadBalancerService(), endpointOn("node-1", "fd00::1", "ready"), FamilyMismatched, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Compute(web, test.service, []*discovery.EndpointSlice{slice(good, test.endpoint)}, reserved)
			if len(got.Refused) != 1 || got.Refused[0].Reason != test.reason || got.Refused[0].Service != web {
				t.Errorf("refused %v, want one of reason %s", got.Refused, test.reason)
			}
			if len(got.Virtuals) != test.virtuals {
				t.Errorf("%d virtual servers, want %d:\n%s", len(got.Virtuals), test.virtuals, format(got))
			}
			for _, v := range got.Virtuals {
				if len(v.Reals) != 1 {
					t.Errorf("%v is served by %v, want the good endpoint alone", v.Key, v.Reals)
				}
			}
		})
	}
}

func TestServicesThatAreNotProxied(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*v1.Service)
	}{
		{"headless", func(s *v1.Service) { s.Spec.ClusterIP = "None" }},
		{"ExternalName", func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeExternalName }},
		{"no cluster IP yet", func(s *v1.Service) { s.Spec.ClusterIP = "" }},
		{"of another proxy", func(s *v1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
		}},
	} {
		if got := Compute(web, loadBalancerService(test.change), nil, options()); len(got.Virtuals)+len(got.Refused) > 0 {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	if got := Compute(web, nil, []*discovery.EndpointSlice{slice()}, options()); len(got.Virtuals) > 0 {
		t.Errorf("a Service that does not exist: %v", got)
	}
}

func TestIngressWithIPModeProxyIsNotBound(t *testing.T) {
	mode := v1.LoadBalancerIPModeProxy
	got := Compute(web, loadBalancerService(func(s *v1.Service) { s.Status.LoadBalancer.Ingress[0].IPMode = &mode }), nil, options())
	if len(got.Virtuals) != 2 {
		t.Errorf("virtual servers:\n%s", format(got))
	}
}

func TestAffinity(t *testing.T) {
	seconds := int32(60)
	for want, change := range map[time.Duration]func(*v1.Service){
		0:             func(*v1.Service) {},
		3 * time.Hour: func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
		60 * time.Second: func(s *v1.Service) {
			s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &seconds}}
		},
	} {
		if got := Compute(web, loadBalancerService(change), nil, options()).Virtuals[0].Affinity; got != want {
			t.Errorf("affinity %v, want %v", got, want)
		}
	}
}

func TestHairpinListsLocalPods(t *testing.T) {
	got := Compute(web, loadBalancerService(), []*discovery.EndpointSlice{slice(endpointOn("node-1", "10.244.1.1", "ready"), endpointOn("node-2", "10.244.2.1", "ready"))}, options())
	if want := []netip.Addr{netip.MustParseAddr("10.244.1.1")}; !slices.Equal(got.Virtuals[0].Hairpin, want) {
		t.Errorf("hairpin %v, want %v", got.Virtuals[0].Hairpin, want)
	}
}

func TestSchedulerAnnotation(t *testing.T) {
	for requested, test := range map[string]struct{ want, refused string }{
		"":         {"rr", ""},
		"mh":       {"mh", ""},
		" sh ":     {"sh", ""},
		"nonsense": {"rr", `"nonsense"`},
		"dh":       {"rr", `"dh"`}, // exists in Linux, but is not supported
		"wlc":      {"rr", "no module"},
	} {
		o := options()
		o.UnavailableSchedulers = map[string]string{"wlc": "no module"}
		s := Compute(web, loadBalancerService(func(s *v1.Service) { s.Annotations = map[string]string{SchedulerAnnotation: requested} }), nil, o)
		for _, v := range s.Virtuals {
			if v.Scheduler != test.want {
				t.Errorf("asked for %q, %v has %s, want %s", requested, v.Key, v.Scheduler, test.want)
			}
		}
		if refused := len(s.Refused) == 1 && s.Refused[0].Reason == BadScheduler && strings.Contains(s.Refused[0].Detail, test.refused); len(s.Virtuals) == 0 ||
			refused != (test.refused != "") || !refused && len(s.Refused) > 0 {
			t.Errorf("asked for %q: refused %v, want %q", requested, s.Refused, test.refused)
		}
	}
}
