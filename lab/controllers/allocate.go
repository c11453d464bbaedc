package controllers

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// The numbers of the first cluster IP and node port: the defaults of kube-apiserver, within the lab's address plan.
const (
	firstClusterIP = 10
	firstNodePort  = 30000
)

// firstClusterIPs are the cluster IPs to allocate next, of each single family.
func firstClusterIPs() map[record.Family]netip.Addr {
	next := map[record.Family]netip.Addr{}
	for _, f := range record.DualStack.Each() {
		next[f] = record.Nth(topology.AddressesOf(f).Services, firstClusterIP)
	}
	return next
}

// allocate sets the cluster IP and node ports that kube-apiserver would allocate, and reports whether anything changed.
func (c *controller) allocate(ctx context.Context, s *corev1.Service) (changed bool, err error) {
	if !needsAllocation(s) {
		return false, nil
	}
	s = s.DeepCopy()
	if s.Spec.ClusterIP == "" {
		c.allocateAddrs(s)
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

// allocateAddrs gives a Service a cluster IP of each of its families; of the cluster's primary one when it names none.
func (c *controller) allocateAddrs(s *corev1.Service) {
	families := c.family.Primary().Each()
	if named := familiesOf(s); len(named) > 0 {
		families = named
	}
	for _, f := range families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, c.nextAddrs[f].String())
		c.nextAddrs[f] = c.nextAddrs[f].Next()
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
}

// familiesOf are the families of a Service, the primary one first; none while it has none.
func familiesOf(s *corev1.Service) (all []record.Family) {
	for _, f := range s.Spec.IPFamilies {
		if f == corev1.IPv6Protocol {
			all = append(all, record.IPv6)
		} else {
			all = append(all, record.IPv4)
		}
	}
	return all
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
