package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
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

// ExternalIPs is the range of the external IPs of Services in a single family. A lab routes it to the first node.
func ExternalIPs(f record.Family) netip.Prefix {
	if f == record.IPv6 {
		return netip.MustParsePrefix("2001:db8:192::/64")
	}
	return netip.MustParsePrefix("192.0.2.0/24")
}

// externalIPs are the external IPs with a number of the families of the run.
func (w *World) externalIPs(number int) (all []string) {
	for _, f := range w.families() {
		all = append(all, record.Nth(ExternalIPs(f), number).String())
	}
	return all
}

// IngressIPs are the addresses in the status of a Service.
func IngressIPs(s *corev1.Service) (all []string) {
	for _, in := range s.Status.LoadBalancer.Ingress {
		all = append(all, in.IP)
	}
	return all
}

// target is where the lanes of a family go: address:port. udp is that of lanes of UDP where it differs.
type target struct{ tcp, udp string }

// shapeFamilies gives a Service the families of the run; a cluster of IPv4 does so itself.
func (w *World) shapeFamilies(s *corev1.ServiceSpec) {
	policies := map[record.Family]corev1.IPFamilyPolicy{record.IPv6: corev1.IPFamilyPolicySingleStack, record.DualStack: corev1.IPFamilyPolicyRequireDualStack}
	policy, other := policies[w.Params.Family()]
	if !other {
		return
	}
	s.IPFamilyPolicy = &policy
	for _, f := range w.families() {
		s.IPFamilies = append(s.IPFamilies, corev1.IPFamily(f.API()))
	}
}

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

// checkStale refuses a foreign rule that would match the pods in one of two families.
func (p Params) checkStale() error {
	if p.Family() != record.DualStack || !strings.HasPrefix(Meddling.Of(p), "stale-") {
		return nil
	}
	return fmt.Errorf("--set %s with %s: a foreign rule matches addresses of one family; give --set family=ipv4 or family=ipv6",
		p.given(AddressFamily.Parameter), p.given(Meddling.Parameter))
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
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, k.externalIPs(w)
	}
	return s
}

// externalIPs are the external IPs of the workload, one of each family.
func (k *workload) externalIPs(w *World) []string {
	if k.name == canaryName {
		return w.externalIPs(2)
	}
	return w.externalIPs(1)
}

// findTarget returns where the lanes of a family go; empty while the addresses of the Service are not known.
func (k *workload) findTarget(ctx context.Context, w *World, f record.Family, s *corev1.Service) (found target, err error) {
	var hosts []string
	number := func(p corev1.ServicePort) int32 { return p.Port }
	switch Target.Of(w.Params) {
	case toNodePort:
		if hosts, err = w.nodeAddresses(ctx, w.Nodes[0]); err != nil {
			return target{}, err
		}
		number = func(p corev1.ServicePort) int32 { return p.NodePort }
	case toClusterIP:
		hosts = append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)
	case ToExternalIP:
		hosts = k.externalIPs(w)
	default:
		hosts = IngressIPs(s)
	}
	host, has := f.Among(hosts...)
	if !has || len(s.Spec.Ports) == 0 {
		return target{}, nil
	}
	for _, p := range s.Spec.Ports {
		at := net.JoinHostPort(host, strconv.Itoa(int(number(p))))
		switch {
		case number(p) == 0:
			return target{}, nil
		case p.Protocol == corev1.ProtocolUDP:
			found.udp = at
		case found.tcp == "":
			found.tcp = at
		}
	}
	return found, nil
}

// nodeAddresses are the internal IPs of a node.
func (w *World) nodeAddresses(ctx context.Context, name string) (all []string, err error) {
	var node corev1.Node
	if err := w.Cluster.Get(ctx, name, "", &node); err != nil {
		return nil, fmt.Errorf("reading the node %s: %w", name, err)
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the node %s has no internal IP in its status: its NodePorts cannot be reached", name)
	}
	return all, nil
}

// targetFor is the target of a lane of a family with the protocol.
func (k *workload) targetFor(f record.Family, protocol string) string {
	if t := k.targets[f]; record.Datagrams(protocol) && t.udp != "" {
		return t.udp
	}
	return k.targets[f].tcp
}

// missing describes what a Service lacks for the target of the lanes.
func missing(p Params) string {
	if word := Target.Of(p); word != "" && word != toLoadBalancer {
		return "its " + word + " is not known yet"
	}
	return "no ingress in its status"
}
