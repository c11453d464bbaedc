//go:build netns

package contract

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hitless/hitless/suites/proxier/testnode"
)

// service returns a Service at 10.96.0.n with endpoints. An endpoint is the name of a pod with optional settings:
// unready, terminating (and serving), ended (terminating and not serving), zone=, node=.
func service(n int, name, endpoints string, change ...func(*v1.Service)) []runtime.Object {
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", n)
	svc.Spec.ClusterIPs, svc.Spec.IPFamilies = []string{svc.Spec.ClusterIP}, []v1.IPFamily{v1.IPv4Protocol}
	svc.Spec.Type = v1.ServiceTypeClusterIP
	svc.Spec.Ports = []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}
	for _, f := range change {
		f(svc)
	}
	objects := []runtime.Object{svc}
	for i, family := range svc.Spec.IPFamilies {
		objects = append(objects, slice(svc, discovery.AddressType(family), i, endpoints))
	}
	return objects
}

func slice(svc *v1.Service, family discovery.AddressType, i int, endpoints string) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: fmt.Sprintf("%s-%d", svc.Name, i),
		Labels: map[string]string{discovery.LabelServiceName: svc.Name}}}
	for _, p := range svc.Spec.Ports {
		port := int32(podPort)
		s.Ports = append(s.Ports, discovery.EndpointPort{Name: &p.Name, Port: &port, Protocol: &p.Protocol})
	}
	for _, text := range strings.Fields(endpoints) {
		s.Endpoints = append(s.Endpoints, endpoint(family, strings.Split(text, ",")))
	}
	return s
}

func endpoint(family discovery.AddressType, words []string) discovery.Endpoint {
	yes, no := true, false
	e := discovery.Endpoint{Conditions: discovery.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
	for _, h := range hosts() {
		if h.name == words[0] {
			i := 0
			if family == discovery.AddressTypeIPv6 {
				i = 1
			}
			e.Addresses, e.NodeName = []string{h.addrs[i]}, &h.nodeName
		}
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "unready":
			e.Conditions.Ready, e.Conditions.Serving = &no, &no
		case "terminating":
			e.Conditions.Ready, e.Conditions.Terminating = &no, &yes
		case "ended":
			e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = &no, &no, &yes
		case "zone":
			e.Hints = hints(e.Hints)
			e.Hints.ForZones = append(e.Hints.ForZones, discovery.ForZone{Name: value})
		case "node":
			e.Hints = hints(e.Hints)
			e.Hints.ForNodes = append(e.Hints.ForNodes, discovery.ForNode{Name: value})
		default:
			panic("unknown endpoint setting " + word)
		}
	}
	return e
}

func hints(h *discovery.EndpointHints) *discovery.EndpointHints {
	if h == nil {
		return &discovery.EndpointHints{}
	}
	return h
}

// loadBalancer sets type LoadBalancer with an IP and a NodePort.
func loadBalancer(ip string, nodePort int32) func(*v1.Service) {
	return func(s *v1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = v1.ServiceTypeLoadBalancer, nodePort
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: ip})
	}
}

// externalLocal sets externalTrafficPolicy: Local.
func externalLocal(check int32) func(*v1.Service) {
	return func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, check
	}
}

func internalLocal(s *v1.Service) {
	local := v1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &local
}

func protocol(p v1.Protocol) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.Ports[0].Protocol = p }
}

func dualStack(ip string) func(*v1.Service) {
	return func(s *v1.Service) {
		s.Spec.ClusterIPs, s.Spec.IPFamilies = append(s.Spec.ClusterIPs, ip), append(s.Spec.IPFamilies, v1.IPv6Protocol)
		both := v1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilyPolicy = &both
	}
}

func withAnnotation(key, value string) func(*v1.Service) {
	return func(s *v1.Service) { s.Annotations = map[string]string{key: value} }
}

func plainService(endpoints string, more ...func(*v1.Service)) []runtime.Object {
	return service(1, "plain", endpoints, append([]func(*v1.Service){loadBalancer("203.0.113.1", 30001)}, more...)...)
}

// services returns the Services of the cases.
func services() (all []runtime.Object) {
	proxied := v1.LoadBalancerIPModeProxy
	add := func(objects []runtime.Object) { all = append(all, objects...) }
	add(plainService("a b r", func(s *v1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.101"} }))
	add(service(2, "hairpin", "a"))
	add(service(3, "local", "a r", loadBalancer("203.0.113.3", 30003), externalLocal(30103)))
	add(service(4, "local-elsewhere", "r", loadBalancer("203.0.113.4", 30004), externalLocal(30104)))
	add(service(5, "local-nowhere", "", loadBalancer("203.0.113.5", 30005), externalLocal(30105)))
	add(service(6, "local-terminating", "a,terminating r", loadBalancer("203.0.113.6", 30006), externalLocal(30106)))
	add(service(7, "local-ended", "a,ended r", loadBalancer("203.0.113.7", 30007), externalLocal(30107)))
	add(service(10, "inside", "a r", internalLocal))
	add(service(11, "inside-elsewhere", "r", internalLocal))
	add(service(12, "inside-terminating", "a,terminating r", internalLocal))
	add(service(20, "terminating", "a,terminating b,ended"))
	add(service(21, "some-terminating", "a b,terminating"))
	add(service(22, "unready", "a,unready"))
	add(service(23, "ended", "a,ended"))
	add(service(24, "some-unready", "a b,unready"))
	add(service(25, "nowhere", "", loadBalancer("203.0.113.25", 30025)))
	add(service(30, "zones", "a,zone="+zone+" b,zone=zone-2 r,zone=zone-2", loadBalancer("203.0.113.30", 30030)))
	add(service(31, "some-zones", "a,zone="+zone+" b r,zone=zone-2"))
	add(service(32, "other-zones", "a,zone=zone-2 r,zone=zone-3"))
	add(service(33, "nodes", "a,zone="+zone+",node="+testnode.NodeName+" b,zone="+zone+",node=node-3 r,zone="+zone+",node=node-2"))
	add(service(34, "other-nodes", "a,zone="+zone+",node=node-2 r,zone=zone-2,node=node-3"))
	add(service(35, "zone-not-ready", "a,zone="+zone+",unready b,zone=zone-2"))
	add(service(40, "affine", "a b r", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }))
	add(service(41, "ranges", "a r", loadBalancer("203.0.113.41", 30041), func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }))
	add(service(42, "proxied", "a", loadBalancer("203.0.113.42", 30042), func(s *v1.Service) { s.Status.LoadBalancer.Ingress[0].IPMode = &proxied }))
	add(service(43, "of-another-proxy", "a", func(s *v1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"} }))
	add(service(44, "by-source", "a b r", withAnnotation("hitless/ipvs-scheduler", "sh")))
	add(service(50, "datagrams", "a b", protocol(v1.ProtocolUDP), loadBalancer("203.0.113.50", 30050)))
	add(service(51, "associations", "a r", protocol(v1.ProtocolSCTP), loadBalancer("203.0.113.51", 30051)))
	add(service(52, "two", "a", func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Port: 80, Protocol: v1.ProtocolUDP}, v1.ServicePort{Name: "other", Port: 81, Protocol: v1.ProtocolTCP})
	}))
	add(service(60, "both", "a r", dualStack("fd00:96::60"), loadBalancer("203.0.113.60", 30060), loadBalancer("2001:db8:cafe::60", 30060)))
	add(service(61, "both-local", "a r", dualStack("fd00:96::61"), loadBalancer("203.0.113.61", 30061), loadBalancer("2001:db8:cafe::61", 30061), externalLocal(30161)))
	return all
}

func (w *testbed) apply(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, o := range objects {
		_, err := w.api.Apply(o)
		testnode.Must(t, err)
	}
}
