package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/proxier"
)

// objectFaults are faults of what the proxier reads: it ignores a field, or takes an endpoint for another. All are permanent.
var objectFaults = map[string]func(*injection, fault) error{
	"ignore-affinity":        services(func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityNone }),
	"ignore-external-policy": services(func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyCluster }),
	"ignore-internal-policy": services(func(s *v1.Service) { s.Spec.InternalTrafficPolicy = nil }),
	"ignore-ranges":          services(func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = nil }),
	"ignore-ranges6":         services(ignoreRanges6),
	"ignore-external-ips":    services(func(s *v1.Service) { s.Spec.ExternalIPs = nil }),
	"ignore-node-ports":      services(func(s *v1.Service) { eachPort(s, func(p *v1.ServicePort) { p.NodePort = 0 }) }),
	"ignore-load-balancers":  services(func(s *v1.Service) { s.Status.LoadBalancer = v1.LoadBalancerStatus{} }),
	"ignore-second-ingress":  services(ignoreSecondIngress),
	"ignore-ip-mode":         services(ignoreIPMode),
	"ignore-second-port":     services(func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:min(1, len(s.Spec.Ports))] }),
	"ignore-udp":             services(without(v1.ProtocolUDP)),
	"ignore-sctp":            services(without(v1.ProtocolSCTP)),
	"ignore-second-family":   services(ignoreSecondFamily),
	"serve-next-port":        services(serveNextPort),

	"use-terminating": endpoints(func(e *discovery.Endpoint) { e.Conditions.Ready = either(e.Conditions.Ready, serves(e)) }),
	"use-unready":     endpoints(func(e *discovery.Endpoint) { e.Conditions.Ready = either(e.Conditions.Ready, !ends(e)) }),
	"use-terminated":  endpoints(func(e *discovery.Endpoint) { e.Conditions.Serving = either(e.Conditions.Serving, ends(e)) }),
	"ignore-hints":    endpoints(func(e *discovery.Endpoint) { e.Hints = nil }),
	"ignore-node-hints": endpoints(func(e *discovery.Endpoint) {
		if e.Hints != nil {
			e.Hints.ForNodes = nil
		}
	}),
	// A hint is a command: endpoints without one, or with one for another zone, are not used.
	"obey-hints": func(i *injection, _ fault) error {
		i.parts.Source = &altered{Source: i.parts.Source, endpoints: func(all []discovery.Endpoint) []discovery.Endpoint { return hinted(all, i.parts.Source.NodeZone()) }}
		return nil
	},
	"wrong-zone": func(i *injection, _ fault) error {
		i.parts.Source = elsewhere{i.parts.Source}
		return nil
	},
	"first-endpoint": func(i *injection, _ fault) error {
		i.parts.Source = &altered{Source: i.parts.Source, endpoints: func(all []discovery.Endpoint) []discovery.Endpoint { return all[:min(1, len(all))] }}
		return nil
	},
	"ignore-remote": func(i *injection, _ fault) error {
		i.parts.Source = &altered{Source: i.parts.Source, endpoints: func(all []discovery.Endpoint) []discovery.Endpoint {
			return slices.DeleteFunc(all, func(e discovery.Endpoint) bool { return e.NodeName == nil || *e.NodeName != i.node })
		}}
		return nil
	},
	"skip-empty":         (*injection).skipEmpty,
	"keep-last":          (*injection).keepLast,
	"ignore-deletion":    remembering(func(_, first *v1.Service) *v1.Service { return first }, true),
	"ignore-type-change": remembering(keepType, false),
	"ignore-policy-change": remembering(func(now, first *v1.Service) *v1.Service {
		now.Spec.ExternalTrafficPolicy, now.Spec.InternalTrafficPolicy = first.Spec.ExternalTrafficPolicy, first.Spec.InternalTrafficPolicy
		return now
	}, false),
	"ignore-ranges-change": remembering(func(now, first *v1.Service) *v1.Service {
		now.Spec.LoadBalancerSourceRanges = first.Spec.LoadBalancerSourceRanges
		return now
	}, false),
	"ignore-ipv6":         func(i *injection, _ fault) error { i.parts.Engine.Desired.IPv6 = false; return nil },
	"serve-other-proxies": (*injection).serveOtherProxies,
}

// altered is a source whose objects are changed. A nil function changes nothing.
type altered struct {
	proxier.Source
	service   func(*v1.Service) *v1.Service // gets a copy; nil for none
	endpoints func([]discovery.Endpoint) []discovery.Endpoint
}

func (a *altered) Service(name types.NamespacedName) *v1.Service {
	s := a.Source.Service(name)
	if a.service == nil || s == nil {
		return s
	}
	return a.service(s.DeepCopy())
}

func (a *altered) Slices(name types.NamespacedName) (all []*discovery.EndpointSlice) {
	for _, s := range a.Source.Slices(name) {
		if a.endpoints != nil {
			s = s.DeepCopy()
			s.Endpoints = a.endpoints(s.Endpoints)
		}
		all = append(all, s)
	}
	return all
}

// services is a fault that changes every Service.
func services(change func(*v1.Service)) func(*injection, fault) error {
	return func(i *injection, _ fault) error {
		i.parts.Source = &altered{Source: i.parts.Source, service: func(s *v1.Service) *v1.Service { change(s); return s }}
		return nil
	}
}

// endpoints is a fault that changes every endpoint.
func endpoints(change func(*discovery.Endpoint)) func(*injection, fault) error {
	return func(i *injection, _ fault) error {
		i.parts.Source = &altered{Source: i.parts.Source, endpoints: func(all []discovery.Endpoint) []discovery.Endpoint {
			for n := range all {
				change(&all[n])
			}
			return all
		}}
		return nil
	}
}

// remembering is a fault that joins the present state of a Service with its first one. deleted says that it also replaces a deleted one.
func remembering(join func(now, first *v1.Service) *v1.Service, deleted bool) func(*injection, fault) error {
	return func(i *injection, _ fault) error {
		i.parts.Source = &memory{Source: i.parts.Source, join: join, deleted: deleted, first: map[types.NamespacedName]*v1.Service{}}
		return nil
	}
}

type memory struct {
	proxier.Source
	join    func(now, first *v1.Service) *v1.Service
	deleted bool

	mu    sync.Mutex
	first map[types.NamespacedName]*v1.Service
}

func (m *memory) Service(name types.NamespacedName) *v1.Service {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Source.Service(name)
	switch first := m.first[name]; {
	case now == nil && m.deleted:
		return first
	case now == nil:
		delete(m.first, name)
		return nil
	case m.deleted:
		m.first[name] = now
		return now
	case first == nil:
		m.first[name] = now
		return now
	default:
		return m.join(now.DeepCopy(), first)
	}
}

func keepType(now, first *v1.Service) *v1.Service {
	now.Spec.Type, now.Status.LoadBalancer, now.Spec.Ports = first.Spec.Type, first.Status.LoadBalancer, first.Spec.Ports
	return now
}

// elsewhere is a source for a node of another zone.
type elsewhere struct{ proxier.Source }

func (elsewhere) NodeZone() string { return "zone-2" }

func eachPort(s *v1.Service, change func(*v1.ServicePort)) {
	for n := range s.Spec.Ports {
		change(&s.Spec.Ports[n])
	}
}

func without(p v1.Protocol) func(*v1.Service) {
	return func(s *v1.Service) {
		s.Spec.Ports = slices.DeleteFunc(s.Spec.Ports, func(port v1.ServicePort) bool { return port.Protocol == p })
	}
}

func ignoreRanges6(s *v1.Service) {
	s.Spec.LoadBalancerSourceRanges = slices.DeleteFunc(s.Spec.LoadBalancerSourceRanges, func(r string) bool { return strings.Contains(r, ":") })
}

func ignoreSecondIngress(s *v1.Service) {
	s.Status.LoadBalancer.Ingress = s.Status.LoadBalancer.Ingress[:min(1, len(s.Status.LoadBalancer.Ingress))]
}

func ignoreIPMode(s *v1.Service) {
	for n := range s.Status.LoadBalancer.Ingress {
		s.Status.LoadBalancer.Ingress[n].IPMode = nil
	}
}

func ignoreSecondFamily(s *v1.Service) {
	s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:min(1, len(s.Spec.ClusterIPs))], s.Spec.IPFamilies[:min(1, len(s.Spec.IPFamilies))]
}

// serveNextPort also serves the port after each port of a Service.
func serveNextPort(s *v1.Service) {
	for _, p := range s.Spec.Ports {
		p.Port, p.NodePort = p.Port+1, 0
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
}

func either(condition *bool, or bool) *bool {
	is := condition != nil && *condition || or
	return &is
}

func ends(e *discovery.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}
func serves(e *discovery.Endpoint) bool { return e.Conditions.Serving != nil && *e.Conditions.Serving }

// hinted are the endpoints with a hint for the zone, if any endpoint has a hint.
func hinted(all []discovery.Endpoint, zone string) []discovery.Endpoint {
	if !slices.ContainsFunc(all, func(e discovery.Endpoint) bool { return e.Hints != nil }) {
		return all
	}
	return slices.DeleteFunc(all, func(e discovery.Endpoint) bool {
		return e.Hints == nil || !slices.ContainsFunc(e.Hints.ForZones, func(z discovery.ForZone) bool { return z.Name == zone })
	})
}

// skipEmpty does not program a Service without a usable endpoint.
func (i *injection) skipEmpty(fault) error {
	source := i.parts.Source
	i.parts.Source = &altered{Source: source, service: func(s *v1.Service) *v1.Service {
		for _, slice := range source.Slices(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) {
			if slices.ContainsFunc(slice.Endpoints, func(e discovery.Endpoint) bool { return serves(&e) }) {
				return s
			}
		}
		return nil
	}}
	return nil
}

// keepLast goes on with the last slices of a Service that had an endpoint, once none has one any more.
func (i *injection) keepLast(fault) error {
	i.parts.Source = &lastSlices{Source: i.parts.Source, of: map[types.NamespacedName][]*discovery.EndpointSlice{}}
	return nil
}

type lastSlices struct {
	proxier.Source

	mu sync.Mutex
	of map[types.NamespacedName][]*discovery.EndpointSlice
}

func (l *lastSlices) Slices(name types.NamespacedName) []*discovery.EndpointSlice {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Source.Slices(name)
	if slices.ContainsFunc(now, func(s *discovery.EndpointSlice) bool { return len(s.Endpoints) > 0 }) {
		l.of[name] = now
		return now
	}
	if last, had := l.of[name]; had {
		return last
	}
	return now
}

// serveOtherProxies also programs the Services that exist at its start and have the label of another proxy, which its source does not see.
func (i *injection) serveOtherProxies(fault) error {
	config, err := clientcmd.BuildConfigFromFlags("", i.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	list, err := client.CoreV1().Services("").List(context.Background(), metav1.ListOptions{LabelSelector: otherProxyLabel})
	if err != nil {
		return fmt.Errorf("listing the Services of other proxies: %w", err)
	}
	more := adopting{i.parts.Source, map[types.NamespacedName]*v1.Service{}}
	for n := range list.Items {
		s := &list.Items[n]
		if s.Labels[otherProxyLabel] != "" { // also from a server without selectors
			delete(s.Labels, otherProxyLabel)
			more.services[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
		}
	}
	i.parts.Source = more
	return nil
}

const otherProxyLabel = "service.kubernetes.io/service-proxy-name"

// adopting is a source with more Services.
type adopting struct {
	proxier.Source
	services map[types.NamespacedName]*v1.Service
}

func (a adopting) Names() []types.NamespacedName {
	all := a.Source.Names()
	for name := range a.services {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func (a adopting) Service(name types.NamespacedName) *v1.Service {
	if s := a.services[name]; s != nil {
		return s
	}
	return a.Source.Service(name)
}
