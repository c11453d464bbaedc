package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
	"github.com/hitless/hitless/scenarios/values"
)

// The targets of lanes: which address of a Service they go to.
const (
	toLoadBalancer = "loadBalancer"
	toNodePort     = "nodePort"
	toClusterIP    = "clusterIP"
	// ToExternalIP goes to one of ExternalIPs.
	ToExternalIP = "externalIP"
)

// The places where lanes start.
const (
	// Outside is a client outside the cluster, beyond the load balancer.
	Outside = "outside"
	// OnNode is the first node itself.
	OnNode = "node"
	// InPod is a pod on the first node.
	InPod = "pod"
)

// ExternalIPs is the range of the external IPs of Services. A lab routes it to the first node.
var ExternalIPs = netip.MustParsePrefix("192.0.2.0/24")

// minReuse is longer than an attempt can wait: the dial deadline and the reply deadline together.
const minReuse = 5 * time.Second

// reuseTime reads the value of reuse: 0s, or at least minReuse.
func reuseTime(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil && d == 0 {
		return 0, nil
	}
	d, err := values.Duration(minReuse, time.Hour)(text)
	if err != nil {
		return 0, fmt.Errorf("%w, or 0s for fresh five-tuples only; an attempt may wait for 4s, and its five-tuple with it", err)
	}
	return d, nil
}

// target is the address of the Service that the lanes go to.
func (p Params) target() string { return cmp.Or(Target.Of(p), toLoadBalancer) }

// ThroughBalancer reports whether the lanes go through the external load balancer.
func (p Params) ThroughBalancer() bool {
	return p.target() == toLoadBalancer && cmp.Or(ClientPlace.Of(p), Outside) == Outside
}

// checkPolicyChanges refuses changes of the Service that are not possible where the lanes go.
func (p Params) checkPolicyChanges() error {
	for _, name := range policyChanges().Of(p) {
		if err := p.checkChange(name); err != nil {
			return err
		}
	}
	return nil
}

// checkReuse refuses the reuse of five-tuples by lanes that keep theirs.
func (p Params) checkReuse() error {
	if reuse.Of(p) == 0 {
		return nil
	}
	for _, name := range p.laneNames() {
		if name != record.ProtocolNew && name != record.ProtocolFresh {
			return fmt.Errorf("--set %s with %s: a lane of %s keeps its five-tuple; name only %s and %s", p.given(reuse.Parameter), p.given(Lanes.Parameter), name, record.ProtocolNew, record.ProtocolFresh)
		}
	}
	return nil
}

// checkPlaces refuses combinations of a client and a target without a path between them.
func (p Params) checkPlaces() error {
	target, client := Target.Of(p), ClientPlace.Of(p)
	switch {
	case target == toClusterIP && client == Outside:
		return fmt.Errorf("--set target=%s with client=%s: a client outside the cluster has no route to a cluster IP; give --set client=%s or client=%s",
			target, client, OnNode, InPod)
	case p.ThroughBalancer():
		return nil
	case p.terminated():
		return fmt.Errorf("--set target=%s with client=%s and loadBalancer=haproxy: nothing goes through a balancer there; leave loadBalancer out", target, client)
	case target != toClusterIP && TrafficPolicy.Of(p) == string(corev1.ServiceExternalTrafficPolicyLocal):
		return fmt.Errorf("--set target=%s with client=%s goes over one node, which externalTrafficPolicy: Local serves only while a pod is there; "+
			"give --set trafficPolicy=Cluster", target, client)
	}
	return nil
}

// fixedNode is the node of all attempts; empty where a load balancer chooses.
func (w *World) fixedNode() string {
	if w.Params.ThroughBalancer() || len(w.Nodes) == 0 {
		return ""
	}
	return w.Nodes[0]
}

// policyWord is the connection policy of lanes that open connections, in the words of the probes.
func (w *World) policyWord() string {
	if reuse.Of(w.Params) == 0 {
		return ""
	}
	return "reuse:" + reuse.Text(w.Params)
}

// shapeService gives the Service the type that the target of the lanes needs.
func (k *workload) shapeService(w *World, s *corev1.Service) *corev1.Service {
	switch Target.Of(w.Params) {
	case toNodePort:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case toClusterIP:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
	case ToExternalIP:
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{k.externalIP()}
	}
	return s
}

// externalIP is the external IP of the workload.
func (k *workload) externalIP() string {
	first := ExternalIPs.Addr().Next()
	if k.name == canaryName {
		first = first.Next()
	}
	return first.String()
}

// findTarget returns the addresses of the Service that the lanes go to; empty while they are not known.
func (k *workload) findTarget(ctx context.Context, w *World, s *corev1.Service) (target, datagrams string, err error) {
	host := ""
	number := func(p corev1.ServicePort) int32 { return p.Port }
	switch Target.Of(w.Params) {
	case toNodePort:
		if host, err = w.nodeAddress(ctx, w.Nodes[0]); err != nil {
			return "", "", err
		}
		number = func(p corev1.ServicePort) int32 { return p.NodePort }
	case toClusterIP:
		host = s.Spec.ClusterIP
	case ToExternalIP:
		host = k.externalIP()
	default:
		for _, in := range s.Status.LoadBalancer.Ingress {
			host = in.IP
		}
	}
	if host == "" || len(s.Spec.Ports) == 0 {
		return "", "", nil
	}
	for _, p := range s.Spec.Ports {
		at := host + ":" + strconv.Itoa(int(number(p)))
		switch {
		case number(p) == 0:
			return "", "", nil
		case p.Protocol == corev1.ProtocolUDP:
			datagrams = at
		case target == "":
			target = at
		}
	}
	return target, datagrams, nil
}

// nodeAddress is the internal IP of a node.
func (w *World) nodeAddress(ctx context.Context, name string) (string, error) {
	var node corev1.Node
	if err := w.Cluster.Get(ctx, name, "", &node); err != nil {
		return "", fmt.Errorf("reading the node %s: %w", name, err)
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, nil
		}
	}
	return "", fmt.Errorf("the node %s has no internal IP in its status: its NodePorts cannot be reached", name)
}

// targetFor is the target of a lane with the protocol.
func (k *workload) targetFor(protocol string) string {
	if timeline.IsUDP(protocol) && k.udpTarget != "" {
		return k.udpTarget
	}
	return k.target
}

// missing describes what a Service lacks for the target of the lanes.
func missing(p Params) string {
	if word := Target.Of(p); word != "" && word != toLoadBalancer {
		return "its " + word + " is not known yet"
	}
	return "no ingress in its status"
}
