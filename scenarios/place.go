package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What of a Service lanes go to, in the words of the API.
const (
	toLoadBalancer = "loadBalancer"
	toNodePort     = "nodePort"
	toClusterIP    = "clusterIP"
	// ToExternalIP goes to one of ExternalIPs.
	ToExternalIP = "externalIP"
)

// Where lanes start.
const (
	// Outside is a client of its own, beyond the load balancer.
	Outside = "outside"
	// OnNode is the first node itself.
	OnNode = "node"
	// InPod is a pod on the first node.
	InPod = "pod"
)

// ExternalIPs is the range of the external IPs of Services; whoever brings the lab up has it routed to the first node.
var ExternalIPs = netip.MustParsePrefix("192.0.2.0/24")

// The parameters that come with lanesParameter.
var (
	targetParameter = Parameter{"target", toLoadBalancer, "what of the Service the lanes go to: loadBalancer; or, past the balancer, nodePort (of the first node), " +
		"externalIP (routed to the first node) or clusterIP", oneOf(toLoadBalancer, toNodePort, ToExternalIP, toClusterIP), []Capability{ClientPlacement}, nil}
	clientParameter = Parameter{"client", Outside, "where the lanes start: outside; or in the cluster, on the first node or in a pod there", oneOf(Outside, OnNode, InPod), []Capability{ClientPlacement}, nil}
	closeParameter  = Parameter{"close", "fin", "how the client ends a connection: fin, or rst, which conntrack forgets after 10 s instead of 120 s", oneOf("fin", "rst"), nil, nil}
	directParameter = Parameter{"direct", "off", "whether each ready pod is asked at its own address too, past balancer and proxies: what fails there as well is not the proxy's loss", onOff, []Capability{PodLanes}, nil}
	reuseParameter  = Parameter{"reuse", "0s", "after which time a five-tuple is dialled again, on purpose; 0s: never within 130 s", reuseAfter, nil, nil}
)

// leastReuse is more than an attempt waits at most: the dial deadline and the reply deadline.
const leastReuse = 5 * time.Second

// reuseAfter checks the value of reuseParameter.
func reuseAfter(value string) error {
	if d, err := time.ParseDuration(value); err == nil && d == 0 {
		return nil
	}
	if err := durationIn(leastReuse, time.Hour)(value); err != nil {
		return fmt.Errorf("%w, or 0s for fresh five-tuples only; an attempt may wait for 4s, and its five-tuple with it", err)
	}
	return nil
}

// laneParameters are the parameters that come with the scenario's own, such as those of the lanes with lanesParameter.
func (s Scenario) laneParameters() (all []Parameter) {
	for _, p := range s.Parameters {
		all = append(all, p.with...)
	}
	return all
}

// ThroughBalancer reports whether the lanes go through the external load balancer.
func (p Params) ThroughBalancer() bool {
	return cmp.Or(p[targetParameter.Key], toLoadBalancer) == toLoadBalancer && cmp.Or(p[clientParameter.Key], Outside) == Outside
}

// checkPlaces says which of the values do not go together.
func (p Params) checkPlaces() error {
	target, client := p[targetParameter.Key], p[clientParameter.Key]
	for name := range strings.SplitSeq(p[changesKey], ",") {
		if err := p.checkChange(name); err != nil {
			return err
		}
	}
	if reuse := p.duration(reuseParameter.Key); reuse > 0 {
		for _, name := range p.lanes() {
			if name != tcpNew && name != udpFresh {
				return fmt.Errorf("--set %s=%s with lanes=%s: a lane of %s keeps its five-tuple; name only %s and %s", reuseParameter.Key,
					p[reuseParameter.Key], p[lanesParameter.Key], name, tcpNew, udpFresh)
			}
		}
	}
	switch {
	case target == toClusterIP && client == Outside:
		return fmt.Errorf("--set target=%s with client=%s: nobody outside has a route to a cluster IP; give --set client=%s or client=%s",
			target, client, OnNode, InPod)
	case p.ThroughBalancer():
		return nil
	case p["loadBalancer"] == "haproxy":
		return fmt.Errorf("--set target=%s with client=%s and loadBalancer=haproxy: nothing goes through a balancer there; leave loadBalancer out", target, client)
	case target != toClusterIP && p["trafficPolicy"] == string(corev1.ServiceExternalTrafficPolicyLocal):
		return fmt.Errorf("--set target=%s with client=%s goes over one node, which externalTrafficPolicy: Local serves only while a pod is there; "+
			"give --set trafficPolicy=Cluster", target, client)
	}
	return nil
}

// overNode is the node that all attempts go over; empty when a balancer chooses.
func (w *World) overNode() string {
	if w.Params.ThroughBalancer() || len(w.Nodes) == 0 {
		return ""
	}
	return w.Nodes[0]
}

// policyWord is the connection policy of the lanes that open connections, as the probes have it.
func (w *World) policyWord() string {
	if w.Params.duration(reuseParameter.Key) == 0 {
		return ""
	}
	return "reuse:" + w.Params[reuseParameter.Key]
}

// shape makes the Service one that has what the lanes go to.
func (k *workload) shape(w *World, s *corev1.Service) *corev1.Service {
	switch w.Params[targetParameter.Key] {
	case toNodePort:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case toClusterIP:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
	case ToExternalIP:
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{k.externalIP()}
	}
	return s
}

// externalIP is an address of the range for each of the workloads of a run.
func (k *workload) externalIP() string {
	first := ExternalIPs.Addr().Next()
	if k.name == canaryName {
		first = first.Next()
	}
	return first.String()
}

// findTarget reads from the Service where lanes go; an empty target says that it is not known yet.
func (k *workload) findTarget(ctx context.Context, w *World, s *corev1.Service) (target, datagrams string, err error) {
	host := ""
	number := func(p corev1.ServicePort) int32 { return p.Port }
	switch w.Params[targetParameter.Key] {
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

// nodeAddress is the address of a node in the cluster.
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

// at is where a lane of the protocol goes.
func (k *workload) at(protocol string) string {
	if isUDP(protocol) && k.udpTarget != "" {
		return k.udpTarget
	}
	return k.target
}

// missing says what a Service lacks of what the lanes go to.
func missing(p Params) string {
	if word := p[targetParameter.Key]; word != "" && word != toLoadBalancer {
		return "its " + word + " is not known yet"
	}
	return "no ingress in its status"
}
