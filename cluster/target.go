package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NoTargetError is the error for a Service that has no address for clients outside the cluster.
type NoTargetError struct{ Reason string }

// Error is the reason.
func (e *NoTargetError) Error() string { return e.Reason }

// Target waits until a Service has an address for clients outside the cluster, and returns it with its first port: the load
// balancer's for the type LoadBalancer, a node's with the node port for NodePort. A Service that has none in time gives a
// NoTargetError.
func (c *Cluster) Target(ctx context.Context, namespace, service string, nodes []Node, most time.Duration) (string, error) {
	var target string
	var last error
	found := c.poll(ctx, most, func(ctx context.Context) bool {
		s, err := c.Client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
		if err == nil {
			target, err = serviceAddress(ctx, s, nodes)
		}
		last = err
		return target != ""
	})
	switch {
	case found:
		return target, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case last != nil:
		return "", fmt.Errorf("waiting for the address of the Service %s: %w", service, Explain(last))
	}
	return "", &NoTargetError{fmt.Sprintf("the Service %s of type LoadBalancer got no address within %s: this cluster gives none "+
		"(no cloud provider, no MetalLB or the like), or its quota is used up; `kubectl -n %s describe service %s` tells. "+
		"--target nodePort measures over the nodes' addresses", service, most, namespace, service)}
}

// serviceAddress returns address:port of a Service; empty while it has none.
func serviceAddress(ctx context.Context, s *corev1.Service, nodes []Node) (string, error) {
	if len(s.Spec.Ports) == 0 {
		return "", nil
	}
	if s.Spec.Type == corev1.ServiceTypeNodePort {
		if p := s.Spec.Ports[0].NodePort; p != 0 && len(nodes) > 0 && len(nodes[0].Addresses) > 0 {
			return net.JoinHostPort(nodes[0].Addresses[0], strconv.Itoa(int(p))), nil
		}
		return "", nil
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		address := in.IP
		if address == "" && in.Hostname != "" {
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", in.Hostname)
			if err != nil {
				return "", fmt.Errorf("looking up the load balancer's name: %w", err)
			}
			address = found[0].Unmap().String()
		}
		if _, err := netip.ParseAddr(address); err == nil {
			return net.JoinHostPort(address, strconv.Itoa(int(s.Spec.Ports[0].Port))), nil
		}
	}
	return "", nil
}
