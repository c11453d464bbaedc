package controllers

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ranges of cluster IPs and node ports: the defaults of kube-apiserver, within the lab's address plan.
var firstClusterIP = netip.MustParseAddr("10.96.0.10")

const firstNodePort = 30000

// allocate sets the cluster IP and node ports that kube-apiserver would allocate, and reports whether anything changed.
func (c *controller) allocate(ctx context.Context, s *corev1.Service) (changed bool, err error) {
	if !needsAllocation(s) {
		return false, nil
	}
	s = s.DeepCopy()
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = c.nextAddr.String()
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		c.nextAddr = c.nextAddr.Next()
		changed = true
	}
	for i := range s.Spec.Ports {
		if external(s) && s.Spec.Ports[i].NodePort == 0 {
			s.Spec.Ports[i].NodePort = c.port()
			changed = true
		}
		if !external(s) && s.Spec.Ports[i].NodePort != 0 {
			s.Spec.Ports[i].NodePort = 0 // left from the previous type
			changed = true
		}
	}
	if local(s) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = c.port()
		changed = true
	} else if !local(s) && s.Spec.HealthCheckNodePort != 0 {
		s.Spec.HealthCheckNodePort = 0
		changed = true
	}
	if changed {
		_, err = c.client.CoreV1().Services(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	}
	return changed, err
}

// needsAllocation reports whether a Service differs from what kube-apiserver would have allocated. It runs for each
// Service after each change.
func needsAllocation(s *corev1.Service) bool {
	wrong := func(p corev1.ServicePort) bool { return external(s) != (p.NodePort != 0) }
	return s.Spec.ClusterIP == "" || local(s) != (s.Spec.HealthCheckNodePort != 0) || slices.ContainsFunc(s.Spec.Ports, wrong)
}

func external(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort
}

func local(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func (c *controller) port() int32 {
	c.nextPort++
	return c.nextPort - 1
}
