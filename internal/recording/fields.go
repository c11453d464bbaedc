package recording

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The recorded kinds, in the order of the objects at the beginning of a recording.
const (
	kindNode    = "Node"
	kindService = "Service"
	kindSlice   = "EndpointSlice"
	kindPod     = "Pod"
)

var kinds = []string{kindNode, kindService, kindSlice, kindPod}

// balancerClass keeps the lab's load balancer from recorded Services of type LoadBalancer, whose addresses are recorded.
const balancerClass = "hitless/recorded"

// selectionLabels are the labels by which proxies select Services and EndpointSlices. Other labels are dropped.
var selectionLabels = []string{"service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name", discoveryv1.LabelServiceName}

// recordedPart returns a copy of the object with its recorded fields; nil for the Service kubernetes of each cluster, and for objects
// without addresses, which have no rules.
func recordedPart(object any) metav1.Object {
	switch o := object.(type) {
	case *corev1.Service:
		return recordedService(o)
	case *discoveryv1.EndpointSlice:
		return recordedSlice(o)
	case *corev1.Node:
		return recordedNode(o)
	case *corev1.Pod:
		return recordedPod(o)
	}
	return nil
}

// recordedMeta returns the name and the labels with these keys.
func recordedMeta(m metav1.ObjectMeta, keys ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace}
	for _, key := range keys {
		if value, has := m.Labels[key]; has {
			metav1.SetMetaDataLabel(&out, key, value)
		}
	}
	return out
}

// recordedService drops the selector: the endpoints are recorded too.
func recordedService(s *corev1.Service) metav1.Object {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
		return nil
	}
	from := s.DeepCopy().Spec
	out := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindService}, ObjectMeta: recordedMeta(s.ObjectMeta, selectionLabels...),
		Spec: corev1.ServiceSpec{
			Type: from.Type, ClusterIP: from.ClusterIP, ClusterIPs: from.ClusterIPs, IPFamilies: from.IPFamilies, IPFamilyPolicy: from.IPFamilyPolicy,
			ExternalIPs: from.ExternalIPs, SessionAffinity: from.SessionAffinity, SessionAffinityConfig: from.SessionAffinityConfig,
			LoadBalancerSourceRanges: from.LoadBalancerSourceRanges, AllocateLoadBalancerNodePorts: from.AllocateLoadBalancerNodePorts,
			ExternalTrafficPolicy: from.ExternalTrafficPolicy, InternalTrafficPolicy: from.InternalTrafficPolicy, TrafficDistribution: from.TrafficDistribution,
			HealthCheckNodePort: from.HealthCheckNodePort, PublishNotReadyAddresses: from.PublishNotReadyAddresses,
		}}
	for _, p := range from.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, TargetPort: p.TargetPort, NodePort: p.NodePort})
	}
	if from.Type == corev1.ServiceTypeLoadBalancer {
		class := balancerClass
		out.Spec.LoadBalancerClass = &class
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			out.Status.LoadBalancer.Ingress = append(out.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: in.IP, IPMode: in.IPMode})
		}
	}
	return out
}

func recordedSlice(s *discoveryv1.EndpointSlice) metav1.Object {
	if s.AddressType == discoveryv1.AddressTypeFQDN || s.Namespace == metav1.NamespaceDefault && s.Labels[discoveryv1.LabelServiceName] == "kubernetes" {
		return nil
	}
	out := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: kindSlice},
		ObjectMeta: recordedMeta(s.ObjectMeta, selectionLabels...), AddressType: s.AddressType, Endpoints: []discoveryv1.Endpoint{}}
	for _, e := range s.DeepCopy().Endpoints {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName, Zone: e.Zone, Hints: e.Hints})
	}
	for _, p := range s.DeepCopy().Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return out
}

func recordedNode(n *corev1.Node) metav1.Object {
	out := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindNode}, ObjectMeta: recordedMeta(n.ObjectMeta, corev1.LabelTopologyZone),
		Spec: corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable}}
	for _, a := range n.Status.Addresses {
		if _, err := netip.ParseAddr(a.Address); err == nil {
			out.Status.Addresses = append(out.Status.Addresses, a)
		}
	}
	if i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); i >= 0 {
		out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: n.Status.Conditions[i].Status}} // without times: a heartbeat is no change
	}
	return out
}

// recordedPod keeps node, addresses and readiness. It drops labels, so that no Service of the lab selects the pod.
func recordedPod(p *corev1.Pod) metav1.Object {
	out := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kindPod}, ObjectMeta: recordedMeta(p.ObjectMeta),
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Containers: []corev1.Container{{Name: "recorded", Image: "recorded"}}},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: slices.Clone(p.Status.PodIPs)}}
	if i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }); i >= 0 {
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: p.Status.Conditions[i].Status}}
	}
	return out
}

// gracePeriod returns a deleted pod's grace period in seconds; 0 for a pod that is not deleted, has no node or has ended.
func gracePeriod(object any) int64 {
	p, is := object.(*corev1.Pod)
	if !is || p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || p.Spec.NodeName == "" ||
		p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return 0
	}
	return max(0, *p.DeletionGracePeriodSeconds)
}
