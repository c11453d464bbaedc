package routing

import (
	v1 "k8s.io/api/core/v1"
)

// zoneHints asks for the endpoints of the node's own zone.
var zoneHints = Case{Name: "zone hints", Client: "c", Target: "cluster/30:80", Want: "a", Features: []string{"hints", "cluster-ip"}}

// Cases are the checks of Services that do not change, grouped by feature. Addresses and node ports end in the number of their Service.
var Cases = []Case{
	{Name: "cluster IP", Client: "c", Target: "cluster/1:80", Want: "a b r", Source: "itself", Features: []string{"cluster-ip"}},
	{Name: "cluster IP, from the node", Client: "node", Target: "cluster/1:80", Want: "a b r", Source: "node", Features: []string{"cluster-ip"}},
	{Name: "cluster IP, from outside: masqueraded", Client: "client", Target: "cluster/1:80", Want: "a b r", Source: "node", Own: true, Features: []string{"cluster-ip"}},
	{Name: "port that the Service lacks", Client: "c", Target: "cluster/1:81", Want: "refused", Features: []string{"ports", "cluster-ip"}, Promised: Blocked},
	{Name: "NodePort at the primary address", Client: "client", Target: "node:30001", Want: "a b r", Source: "node", Features: []string{"node-port"}},
	{Name: "NodePort at another address", Client: "client", Target: "node2:30001", Want: "refused", Features: []string{"node-port"}, Own: true},
	{Name: "load balancer IP", Client: "client", Target: "lb/1:80", Want: "a b r", Source: "node", Features: []string{"load-balancer"}},
	{Name: "load balancer IP, from a pod", Client: "c", Target: "lb/1:80", Want: "a b r", Features: []string{"load-balancer"}},
	{Name: "external IP", Client: "client", Target: "external/101:80", Want: "a b r", Source: "node", Features: []string{"external-ip"}},
	{Name: "pod to its own Service", Client: "a", Target: "cluster/2:80", Want: "a", Source: "node", Features: []string{"hairpin", "cluster-ip"}},

	{Name: "policy Local", Client: "client", Target: "lb/3:80", Want: "a", Source: "itself", Features: []string{"external-policy-local", "load-balancer"}},
	{Name: "policy Local, NodePort", Client: "client", Target: "node:30003", Want: "a", Source: "itself", Features: []string{"external-policy-local", "node-port"}},
	{Name: "policy Local, external IP", Client: "client", Target: "external/103:80", Want: "a", Source: "itself", Features: []string{"external-policy-local", "external-ip"}},
	{Name: "policy Local, cluster IP", Client: "c", Target: "cluster/3:80", Want: "a r", Source: "itself", Features: []string{"external-policy-local", "cluster-ip"}},
	{Name: "policy Local, health", Client: "client", Target: "check!30103", Want: "200, weight 1", Features: []string{"external-policy-local", "health-check-node-port"}},
	{Name: "policy Local without a local endpoint", Client: "client", Target: "lb/4:80", Want: "dropped", IPVS: "r", Features: []string{"external-policy-local", "load-balancer"}},
	{Name: "policy Local without a local endpoint, NodePort", Client: "client", Target: "node:30004", Want: "dropped", IPVS: "r", Features: []string{"external-policy-local", "node-port"}},
	{Name: "policy Local without a local endpoint, cluster IP", Client: "c", Target: "cluster/4:80", Want: "r", Source: "itself", Features: []string{"external-policy-local", "cluster-ip"}},
	{Name: "policy Local without a local endpoint, health", Client: "client", Target: "check!30104", Want: "503, weight 0", Features: []string{"external-policy-local", "health-check-node-port"}},
	{Name: "policy Local without any endpoint", Client: "client", Target: "lb/5:80", Want: "refused", Features: []string{"external-policy-local", "endpoints", "load-balancer"}},
	{Name: "policy Local without any endpoint, health", Client: "client", Target: "check!30105", Want: "503, weight 0", Features: []string{"external-policy-local", "health-check-node-port"}},
	{Name: "policy Local, local endpoint terminating and serving", Client: "client", Target: "lb/6:80", Want: "a", Source: "itself", Features: []string{"external-policy-local", "terminating-endpoints", "load-balancer"}},
	{Name: "policy Local, local endpoint terminating and serving, health", Client: "client", Target: "check!30106", Want: "503, weight 0", Features: []string{"external-policy-local", "health-check-node-port", "terminating-endpoints"}},
	{Name: "policy Local, local endpoint terminated", Client: "client", Target: "lb/7:80", Want: "dropped", IPVS: "r", Features: []string{"external-policy-local", "terminating-endpoints", "load-balancer"}},
	// IPVS does not distinguish clients: see docs/proxier.md.
	{Name: "policy Local, from a pod", Client: "c", Target: "lb/3:80", Want: "a", IPVS: "a", Features: []string{"external-policy-local", "load-balancer"}, Promised: "a r"},
	{Name: "policy Local without a local endpoint, from a pod", Client: "c", Target: "lb/4:80", Want: "dropped", Features: []string{"external-policy-local", "load-balancer"}, Promised: "r"},
	{Name: "policy Local without a local endpoint, from the node", Client: "node", Target: "lb/4:80", Want: "dropped", Features: []string{"external-policy-local", "load-balancer"}, Promised: "r"},

	{Name: "internal policy Local", Client: "c", Target: "cluster/10:80", Want: "a", Source: "itself", Features: []string{"internal-policy-local", "cluster-ip"}},
	{Name: "internal policy Local, from the node", Client: "node", Target: "cluster/10:80", Want: "a", Features: []string{"internal-policy-local", "cluster-ip"}},
	{Name: "internal policy Local without a local endpoint", Client: "c", Target: "cluster/11:80", Want: "dropped", IPVS: "refused", Features: []string{"internal-policy-local", "cluster-ip"}},
	{Name: "internal policy Local, local endpoint terminating and serving", Client: "c", Target: "cluster/12:80", Want: "a", Features: []string{"internal-policy-local", "terminating-endpoints", "cluster-ip"}},

	{Name: "no ready endpoint, one terminating and serving", Client: "c", Target: "cluster/20:80", Want: "a", Features: []string{"terminating-endpoints", "cluster-ip"}},
	{Name: "one ready endpoint, one terminating and serving", Client: "c", Target: "cluster/21:80", Want: "a", Features: []string{"terminating-endpoints", "cluster-ip"}},
	{Name: "one unready endpoint", Client: "c", Target: "cluster/22:80", Want: "refused", Features: []string{"endpoints", "cluster-ip"}},
	{Name: "one terminated endpoint", Client: "c", Target: "cluster/23:80", Want: "refused", Features: []string{"terminating-endpoints", "cluster-ip"}},
	{Name: "one ready endpoint, one unready", Client: "c", Target: "cluster/24:80", Want: "a", Features: []string{"endpoints", "cluster-ip"}},
	{Name: "no endpoints", Client: "c", Target: "cluster/25:80", Want: "refused", Features: []string{"endpoints", "cluster-ip"}},
	{Name: "no endpoints, from the node", Client: "node", Target: "cluster/25:80", Want: "refused", Features: []string{"endpoints", "cluster-ip"}},
	{Name: "no endpoints, load balancer IP", Client: "client", Target: "lb/25:80", Want: "refused", Features: []string{"endpoints", "load-balancer"}},
	{Name: "no endpoints, NodePort", Client: "client", Target: "node:30025", Want: "refused", Features: []string{"endpoints", "node-port"}},

	zoneHints,
	{Name: "zone hints, load balancer IP", Client: "client", Target: "lb/30:80", Want: "a", Features: []string{"hints", "load-balancer"}},
	{Name: "zone hints, one missing", Client: "c", Target: "cluster/31:80", Want: "a b r", Features: []string{"hints", "cluster-ip"}},
	{Name: "zone hints for other zones", Client: "c", Target: "cluster/32:80", Want: "a r", Features: []string{"hints", "cluster-ip"}},
	{Name: "node hints", Client: "c", Target: "cluster/33:80", Want: "a", Features: []string{"traffic-distribution", "cluster-ip"}},
	{Name: "node hints for other nodes, zone hints", Client: "c", Target: "cluster/34:80", Want: "a", Features: []string{"traffic-distribution", "cluster-ip"}},
	{Name: "zone hints, unready in this zone", Client: "c", Target: "cluster/35:80", Want: "b", Features: []string{"endpoints", "hints", "cluster-ip"}},

	{Name: "affinity", Client: "c", Target: "cluster/40:80", Want: "one", Source: "itself", Features: []string{"affinity", "cluster-ip"}},
	{Name: "affinity, load balancer IP", Client: "client", Target: "lb/40:80", Want: "one", Source: "node", Features: []string{"affinity", "load-balancer"}},
	{Name: "affinity, NodePort", Client: "client", Target: "node:30040", Want: "one", Source: "node", Features: []string{"affinity", "node-port"}},
	{Name: "source ranges", Client: "client", Target: "lb/41:80", Want: "a r", Features: []string{"source-ranges", "load-balancer"}},
	{Name: "source ranges, other client", Client: "stranger", Target: "lb/41:80", Want: "dropped", Promised: Blocked, Features: []string{"source-ranges", "load-balancer"}},
	{Name: "source ranges, NodePort", Client: "stranger", Target: "node:30041", Want: "a r", Features: []string{"source-ranges", "node-port"}},
	{Name: "source ranges, cluster IP", Client: "c", Target: "cluster/41:80", Want: "a r", Features: []string{"source-ranges", "cluster-ip"}},
	{Name: "load balancer with ipMode Proxy (KEP-1860)", Client: "client", Target: "lb/42:80", Want: "dropped", Promised: Blocked, Features: []string{"ip-mode", "load-balancer"}},
	{Name: "load balancer with ipMode Proxy, NodePort", Client: "client", Target: "node:30042", Want: "a", Features: []string{"ip-mode", "node-port"}},
	{Name: "Service of another proxy", Client: "c", Target: "cluster/43:80", Want: "dropped", Promised: Blocked, Features: []string{"service-proxy-name", "cluster-ip"}},
	{Name: "scheduler annotation", Client: "c", Target: "cluster/44:80", Want: "one", NFTables: "a b r", IPVS: "a b r", Features: []string{"cluster-ip"}, Own: true},

	{Name: "UDP", Client: "c", Target: "udp!cluster/50:80", Want: "a r", Source: "itself", Features: []string{"udp", "cluster-ip"}},
	{Name: "UDP, load balancer IP", Client: "client", Target: "udp!lb/50:80", Want: "a r", Source: "node", Features: []string{"udp", "load-balancer"}},
	{Name: "UDP, NodePort", Client: "client", Target: "udp!node:30050", Want: "a r", Source: "node", Features: []string{"udp", "node-port"}},
	{Name: "SCTP", Client: "c", Target: "sctp!cluster/51:80", Want: "a r", Source: "itself", Features: []string{"sctp", "cluster-ip"}},
	{Name: "SCTP, load balancer IP", Client: "client", Target: "sctp!lb/51:80", Want: "a r", Source: "node", Features: []string{"sctp", "load-balancer"}},
	{Name: "two protocols at one port", Client: "c", Target: "udp!cluster/52:80", Want: "a", Features: []string{"udp", "ports", "cluster-ip"}},
	{Name: "a second port", Client: "c", Target: "cluster/52:81", Want: "a", Features: []string{"ports", "cluster-ip"}},

	{Name: "IPv6, cluster IP", Client: "c", Target: "cluster6/60:80", Want: "a r", Source: "itself", Features: []string{"cluster-ip"}, Both: true},
	{Name: "IPv6, cluster IP, from outside", Client: "client", Target: "cluster6/60:80", Want: "a r", Source: "node", Own: true, Features: []string{"cluster-ip"}, Both: true},
	{Name: "IPv6, load balancer IP", Client: "client", Target: "lb6/60:80", Want: "a r", Source: "node", Features: []string{"load-balancer"}, Both: true},
	{Name: "IPv6, NodePort", Client: "client", Target: "node6:30060", Want: "a r", Source: "node", Features: []string{"node-port"}, Both: true},
	{Name: "dual-stack IPv4", Client: "client", Target: "lb/60:80", Want: "a r", Source: "node", Features: []string{"load-balancer"}, Both: true},
	{Name: "IPv6, policy Local", Client: "client", Target: "lb6/61:80", Want: "a", Source: "itself", Features: []string{"external-policy-local", "load-balancer"}, Both: true},
	{Name: "dual-stack IPv4, policy Local", Client: "client", Target: "lb/61:80", Want: "a", Source: "itself", Features: []string{"external-policy-local", "load-balancer"}, Both: true},

	{Name: "program of the host", Client: "client", Target: "node:2222", Want: "host", Features: []string{"host-isolation"}},
	{Name: "program of the host, at a cluster IP", Client: "c", Target: "cluster/1:2222", Want: "refused", Features: []string{"host-isolation"}, Promised: Blocked},
	{Name: "program of the host, at a load balancer IP", Client: "client", Target: "lb/1:2222", Want: "refused", Features: []string{"host-isolation"}, Promised: Blocked},
}

// Change is a change of a Service, and the cases that it must lead to.
type Change struct {
	Apply func(w *Testbed) error
	Cases []Case
}

// Changes are applied to the first Service in turn.
var Changes = []Change{
	{changeTo(""), []Case{
		{Name: "all endpoints removed", Client: "client", Target: "lb/1:80", Want: "refused", Features: []string{"endpoints", "load-balancer"}},
		{Name: "all endpoints removed, NodePort", Client: "client", Target: "node:30001", Want: "refused", Features: []string{"endpoints", "node-port"}},
	}},
	{changeTo("b r"), []Case{{Name: "endpoints replaced", Client: "client", Target: "lb/1:80", Want: "b r", Source: "node", Features: []string{"endpoints", "load-balancer"}}}},
	{changeTo("b r", externalLocal(30101)), []Case{
		{Name: "policy changed to Local", Client: "client", Target: "lb/1:80", Want: "b", Source: "itself", Features: []string{"external-policy-local", "policy-change", "load-balancer"}},
		{Name: "policy changed to Local, NodePort", Client: "client", Target: "node:30001", Want: "b", Source: "itself", Features: []string{"external-policy-local", "policy-change", "node-port"}},
	}},
	{changeTo("b r", admitting(strangers)), []Case{
		{Name: "policy changed to Cluster with source ranges", Client: "stranger", Target: "lb/1:80", Want: "b r", Source: "node", Features: []string{"source-ranges", "policy-change", "load-balancer"}},
		{Name: "client outside the source ranges", Client: "client", Target: "lb/1:80", Want: "dropped", Promised: Blocked, Features: []string{"source-ranges", "load-balancer"}},
	}},
	{changeTo("b r", func(s *v1.Service) {
		s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
	}), []Case{
		{Name: "type changed to ClusterIP", Client: "c", Target: "cluster/1:80", Want: "b r", Source: "itself", Features: []string{"policy-change", "cluster-ip"}},
		{Name: "type changed to ClusterIP, NodePort", Client: "client", Target: "node:30001", Want: "refused", Features: []string{"policy-change", "node-port"}},
		// Source ranges admitted the stranger until now: only the change can stop it.
		{Name: "type changed to ClusterIP, load balancer IP", Client: "stranger", Target: "lb/1:80", Want: "dropped", Promised: Blocked, WaitForDrain: true, Features: []string{"policy-change", "load-balancer"}},
	}},
	{func(w *Testbed) error {
		return w.remove("Service", shop, "plain")
	}, []Case{{Name: "deleted", Client: "c", Target: "cluster/1:80", Want: "dropped", Promised: Blocked, WaitForDrain: true, Features: []string{"deletion", "cluster-ip"}}}},
}

// changeTo gives the first Service other endpoints and settings. Addresses in the settings follow the family of the testbed.
func changeTo(endpoints string, more ...func(*v1.Service)) func(w *Testbed) error {
	return func(w *Testbed) error { return w.Apply(w.family.plainService(endpoints, more...)...) }
}
