package routing

//lint:file-ignore SA1019 Endpoints are deprecated, and the only thing that kube-proxy up to 1.18 watches

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// shop is the namespace of the Services.
const shop = "shop"

// service returns the Service number n with endpoints. An endpoint is the name of a pod with optional settings: unready, terminating
// (and serving), ended (terminating and not serving), zone=, node=. Old kube-proxies read the Endpoints.
func (f Family) service(n int, name, endpoints string, change ...func(*v1.Service)) []runtime.Object {
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
	svc.Spec.ClusterIP = f.address("cluster", n)
	svc.Spec.ClusterIPs, svc.Spec.IPFamilies = []string{svc.Spec.ClusterIP}, []v1.IPFamily{f.protocol()}
	svc.Spec.Type = v1.ServiceTypeClusterIP
	svc.Spec.Ports = []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}
	for _, change := range change {
		change(svc)
	}
	for i, r := range svc.Spec.LoadBalancerSourceRanges {
		svc.Spec.LoadBalancerSourceRanges[i] = f.sources(r)
	}
	objects := []runtime.Object{svc, f.oldEndpoints(svc, endpoints)}
	for i, family := range svc.Spec.IPFamilies {
		objects = append(objects, slice(svc, discovery.AddressType(family), i, endpoints))
	}
	return objects
}

// oldEndpoints are the ready endpoints of the first family.
func (f Family) oldEndpoints(svc *v1.Service, endpoints string) *v1.Endpoints {
	e := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	subset := v1.EndpointSubset{}
	for _, text := range strings.Fields(endpoints) {
		if found := endpoint(discovery.AddressType(svc.Spec.IPFamilies[0]), strings.Split(text, ",")); *found.Conditions.Ready {
			subset.Addresses = append(subset.Addresses, v1.EndpointAddress{IP: found.Addresses[0], NodeName: found.NodeName})
		}
	}
	for _, p := range svc.Spec.Ports {
		subset.Ports = append(subset.Ports, v1.EndpointPort{Name: p.Name, Port: podPort, Protocol: p.Protocol})
	}
	if len(subset.Addresses) > 0 {
		e.Subsets = []v1.EndpointSubset{subset}
	}
	return e
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

// admitting sets loadBalancerSourceRanges to the clients of one name.
func admitting(who string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{who} }
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

// preferZone asks for endpoints of the client's zone. kube-proxy obeys hints only with the first annotation up to 1.26, with either from
// 1.27, and always from 1.31 (trafficDistribution is on by default), which other proxies may ask for.
func preferZone(s *v1.Service) {
	s.Annotations = map[string]string{v1.DeprecatedAnnotationTopologyAwareHints: "Auto", v1.AnnotationTopologyMode: "Auto"}
	distribute(v1.ServiceTrafficDistributionPreferClose)(s)
}

// distribute sets trafficDistribution.
func distribute(how string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.TrafficDistribution = &how }
}

func (f Family) plainService(endpoints string, more ...func(*v1.Service)) []runtime.Object {
	return f.service(1, "plain", endpoints, append([]func(*v1.Service){f.loadBalancer(1)}, more...)...)
}

// loadBalancer sets type LoadBalancer, with the IP and the NodePort of a Service's number.
func (f Family) loadBalancer(n int) func(*v1.Service) {
	return loadBalancer(f.address("lb", n), int32(30000+n))
}

// Services returns the Services of the cases, with their endpoints.
func (f Family) Services() (all []runtime.Object) {
	proxied := v1.LoadBalancerIPModeProxy
	add := func(objects []runtime.Object) { all = append(all, objects...) }
	add(f.plainService("a b r", func(s *v1.Service) { s.Spec.ExternalIPs = []string{f.address("external", 101)} }))
	add(f.service(2, "hairpin", "a"))
	add(f.service(3, "local", "a r", f.loadBalancer(3), externalLocal(30103), func(s *v1.Service) { s.Spec.ExternalIPs = []string{f.address("external", 103)} }))
	add(f.service(4, "local-elsewhere", "r", f.loadBalancer(4), externalLocal(30104)))
	add(f.service(5, "local-nowhere", "", f.loadBalancer(5), externalLocal(30105)))
	add(f.service(6, "local-terminating", "a,terminating r", f.loadBalancer(6), externalLocal(30106)))
	add(f.service(7, "local-ended", "a,ended r", f.loadBalancer(7), externalLocal(30107)))
	add(f.service(10, "inside", "a r", internalLocal))
	add(f.service(11, "inside-elsewhere", "r", internalLocal))
	add(f.service(12, "inside-terminating", "a,terminating r", internalLocal))
	add(f.service(20, "terminating", "a,terminating b,ended"))
	add(f.service(21, "some-terminating", "a b,terminating"))
	add(f.service(22, "unready", "a,unready"))
	add(f.service(23, "ended", "a,ended"))
	add(f.service(24, "some-unready", "a b,unready"))
	add(f.service(25, "nowhere", "", f.loadBalancer(25)))
	add(f.service(30, "zones", "a,zone="+zone+" b,zone=zone-2 r,zone=zone-2", f.loadBalancer(30), preferZone))
	add(f.service(31, "some-zones", "a,zone="+zone+" b r,zone=zone-2", preferZone))
	add(f.service(32, "other-zones", "a,zone=zone-2 r,zone=zone-3", preferZone))
	add(f.service(33, "nodes", "a,zone="+zone+",node="+nodeName+" b,zone="+zone+",node=node-3 r,zone="+zone+",node=node-2", distribute(v1.ServiceTrafficDistributionPreferSameNode)))
	add(f.service(34, "other-nodes", "a,zone="+zone+",node=node-2 r,zone=zone-2,node=node-3", distribute(v1.ServiceTrafficDistributionPreferSameNode)))
	add(f.service(35, "zone-not-ready", "a,zone="+zone+",unready b,zone=zone-2", preferZone))
	add(f.service(40, "affine", "a b r", f.loadBalancer(40), func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }))
	add(f.service(41, "ranges", "a r", f.loadBalancer(41), admitting(clients)))
	add(f.service(42, "proxied", "a", f.loadBalancer(42), func(s *v1.Service) { s.Status.LoadBalancer.Ingress[0].IPMode = &proxied }))
	add(f.service(43, "of-another-proxy", "a", func(s *v1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"} }))
	add(f.service(44, "by-source", "a b r", withAnnotation("hitless/ipvs-scheduler", "sh")))
	add(f.service(50, "datagrams", "a r", protocol(v1.ProtocolUDP), f.loadBalancer(50)))
	add(f.service(51, "associations", "a r", protocol(v1.ProtocolSCTP), f.loadBalancer(51)))
	add(f.service(52, "two", "a", func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Port: 80, Protocol: v1.ProtocolUDP}, v1.ServicePort{Name: "other", Port: 81, Protocol: v1.ProtocolTCP})
	}))
	if f != IPv4 { // the Services of both families are the same in both
		return all
	}
	add(f.service(60, "both", "a r", dualStack("fd00:96::60"), f.loadBalancer(60), loadBalancer("2001:db8:cafe::60", 30060)))
	add(f.service(61, "both-local", "a r", dualStack("fd00:96::61"), f.loadBalancer(61), loadBalancer("2001:db8:cafe::61", 30061), externalLocal(30161)))
	return all
}
