package mutants

import "slices"

// rules of packet filters are for the measured Service, and not for the canary.
const (
	webTCP = "ip daddr 203.0.113.10 tcp dport 80 "
	webUDP = "ip daddr 203.0.113.10 udp dport 80 "

	webTCP6 = "ip6 daddr 2001:db8:203::a tcp dport 80 "
	webUDP6 = "ip6 daddr 2001:db8:203::a udp dport 80 "
)

// All returns the mutants.
func All() []Mutant {
	return slices.Concat(readsWrongly, writesWrongly, disturbed, withFlags, documented)
}

// readsWrongly ignore a field of an API object, or take an endpoint for another.
var readsWrongly = []Mutant{
	{Name: "ignore-affinity", Does: "ignores sessionAffinity", Features: []string{"affinity"}},
	{Name: "ignore-external-policy", Does: "takes externalTrafficPolicy for Cluster", Features: []string{"external-policy-local"}},
	{Name: "ignore-internal-policy", Does: "takes internalTrafficPolicy for Cluster", Features: []string{"internal-policy-local"}},
	{Name: "ignore-ranges", Does: "ignores loadBalancerSourceRanges", Features: []string{"source-ranges"}},
	{Name: "ignore-ranges6", Does: "ignores the IPv6 ranges of loadBalancerSourceRanges", Features: []string{"source-ranges"}},
	{Name: "ignore-ranges-change", Does: "keeps the first loadBalancerSourceRanges of a Service", Features: []string{"source-ranges"}},
	{Name: "ignore-external-ips", Does: "ignores externalIPs", Features: []string{"external-ip"}},
	{Name: "ignore-node-ports", Does: "ignores node ports", Features: []string{"node-port"}},
	{Name: "ignore-load-balancers", Does: "ignores the addresses of load balancers", Features: []string{"load-balancer"}},
	{Name: "ignore-second-ingress", Does: "serves only the first address of a load balancer", Features: []string{"load-balancer"}},
	{Name: "ignore-ip-mode", Does: "takes ipMode for VIP", Features: []string{"ip-mode"}},
	{Name: "ignore-second-port", Does: "serves only the first port of a Service", Features: []string{"ports"}},
	{Name: "ignore-udp", Does: "ignores UDP ports", Features: []string{"udp"}},
	{Name: "ignore-sctp", Does: "ignores SCTP ports", Features: []string{"sctp"}},
	{Name: "ignore-second-family", Does: "ignores the second cluster IP of a dual-stack Service", Features: []string{"cluster-ip"}},
	{Name: "ignore-ipv6", Does: "serves no IPv6", Features: []string{"cluster-ip"}},
	{Name: "serve-next-port", Does: "also serves the port after each port of a Service", Features: []string{"ports"}},
	{Name: "serve-other-proxies", Does: "serves Services that have the label of another proxy", Features: []string{"service-proxy-name"}},
	{Name: "use-terminating", Does: "uses serving terminating endpoints although others are ready", Features: []string{"terminating-endpoints"}},
	{Name: "use-terminated", Does: "uses terminating endpoints that do not serve", Features: []string{"terminating-endpoints"}},
	{Name: "use-unready", Does: "uses endpoints that are not ready", Features: []string{"endpoints"}, Runs: []string{"flap"}},
	{Name: "ignore-hints", Does: "ignores topology hints", Features: []string{"hints"}},
	{Name: "ignore-node-hints", Does: "ignores hints for nodes", Features: []string{"traffic-distribution"}},
	{Name: "obey-hints", Does: "uses no endpoint without a hint for its zone", Features: []string{"hints"}},
	{Name: "wrong-zone", Does: "takes its zone for another", Features: []string{"hints"}},
	{Name: "first-endpoint", Does: "uses only the first endpoint of each slice", Features: []string{"cluster-ip"}},
	{Name: "ignore-remote", Does: "uses only the endpoints of its own node", Features: []string{"cluster-ip"}},
	{Name: "skip-empty", Does: "does not program a Service without a usable endpoint, so that nothing refuses connections", Features: []string{"endpoints"}, Runs: []string{"scale-zero"}},
	{Name: "keep-last", Does: "keeps the last endpoints of a Service that has none any more", Features: []string{"endpoints"}, Runs: []string{"scale-zero"}},
	{Name: "ignore-deletion", Does: "keeps a deleted Service", Features: []string{"deletion"}},
	{Name: "ignore-type-change", Does: "keeps node ports and addresses when a Service becomes a ClusterIP", Features: []string{"policy-change"}},
	{Name: "ignore-policy-change", Does: "keeps the first traffic policies of a Service", Features: []string{"policy-change"}},
}

// writesWrongly write something else to the kernel, or answer health checks wrongly.
var writesWrongly = []Mutant{
	{Name: "no-masquerade", Does: "does not masquerade traffic from outside to external addresses and node ports", Features: []string{"load-balancer", "node-port"}},
	{Name: "no-cluster-masquerade", Does: "does not masquerade traffic to cluster IPs", Features: []string{"cluster-ip"}},
	{Name: "masquerade-local", Does: "masquerades traffic behind externalTrafficPolicy: Local, which hides the client's address", Features: []string{"external-policy-local"}},
	{Name: "affinity-inside", Does: "ignores sessionAffinity at load balancer addresses and node ports", Features: []string{"affinity"}},
	{Name: "no-hairpin", Does: "does not masquerade a pod's connections to itself", Features: []string{"hairpin"}},
	{Name: "no-isolation", Does: "lets programs of the node answer at virtual addresses", Features: []string{"host-isolation"}},
	{Name: "close-node", Does: "drops connections to a program of the node", Features: []string{"host-isolation"}},
	{Name: "no-drop", Does: "refuses connections that it must drop, because the endpoints are on other nodes", Features: []string{"external-policy-local"}},
	{Name: "keep-drop", Does: "goes on to drop connections after a Service has local endpoints again", Features: []string{"external-policy-local"}, Runs: []string{"policy-external", "drain-local"}},
	{Name: "drop-empty", Does: "drops connections to a Service without an endpoint instead of refusing them", Features: []string{"endpoints"}},
	{Name: "ranges-everywhere", Does: "applies loadBalancerSourceRanges to node ports and cluster IPs too", Features: []string{"source-ranges"}},
	{Name: "no-cluster-ips", Does: "does not bind cluster IPs", Features: []string{"cluster-ip"}},
	{Name: "keep-endpoints", Does: "never drains or deletes a removed endpoint", Features: []string{"endpoints", "rollout"}, Runs: []string{"rollout-cluster", "rollout-node-port", "rollout-cluster-ipv6", "rollout-cluster-dual-stack", "rollout-node-port-ipv6"}},
	{Name: "never-zero", Does: "sends new connections to removed endpoints until their old ones end", Features: []string{"rollout", "drain"}, Runs: []string{"rollout-cluster-ip", "drain", "rollout-cluster-ip-ipv6", "drain-ipv6"}},
	{Name: "ignore-weight", Does: "does not use an endpoint that becomes ready again while it drains", Features: []string{"flap", "endpoints"}, Runs: []string{"flap", "restart-ready"}},
	{Name: "health-always", Does: "answers 200 to health checks without a local endpoint", Features: []string{"health-check-node-port"}, Runs: []string{"rollout-local"}},
	{Name: "health-never", Does: "answers 503 to health checks with a local endpoint", Features: []string{"health-check-node-port"}},
	{Name: "health-of-all-nodes", Does: "counts the endpoints of all nodes in health checks", Features: []string{"health-check-node-port"}, Runs: []string{"drain-local"}},
	{Name: "health-of-terminating", Does: "counts terminating endpoints in health checks", Features: []string{"health-check-node-port"}},
	{Name: "late-deletion", Does: "deletes 8 s late, and then also what was added again", Features: []string{"recreate", "policy-change"}, Runs: []string{"recreate", "policy-type"}},
}

// disturbed lose connections while something changes, or at random.
var disturbed = []Mutant{
	{Name: "cut-endpoints", Does: "ends the connections of an endpoint at once instead of draining it", Features: []string{"open-connections"}, Runs: []string{"flap", "policy-external", "policy-internal", "policy-external-ipv6", "policy-internal-ipv6"}},
	{Name: "re-add", Does: "deletes and adds an endpoint instead of raising its weight", Features: []string{"open-connections"}, Faults: []string{"*:re-add"}, Runs: []string{"flap"}},
	{Name: "replace-updated", Does: "deletes and adds a virtual server instead of changing it", Features: []string{"affinity"}, Runs: []string{"policy-affinity"}},
	{Name: "rewrite-changed", Does: "deletes and adds all virtual servers of a Service whose spec changes", Features: []string{"policy-change"}, Runs: []string{"policy-ports", "policy-ranges", "policy-internal"}},
	{Name: "ranges-first", Does: "restricts a Service before it allows its clients", Features: []string{"source-ranges"}, Runs: []string{"policy-ranges"}},
	{Name: "flush", Does: "deletes the measured Service's virtual servers at each start", Features: []string{"restart"}, Faults: []string{"*:flush:0s:400ms"}, Flags: []string{"--after-restart"},
		Runs: []string{"restart-term", "restart-kill", "restart-term-ipv6", "restart-term-dual-stack", "others-restart"}},
	{Name: "clean-at-end", Does: "deletes its virtual servers when it ends", Features: []string{"upgrade"}, Runs: []string{"upgrade-itself", "upgrade-rollout"}},
	{Name: "lease", Does: "drops all packets unless the proxier gives a sign of life every 3 s", Features: []string{"restart"}, Runs: []string{"restart-stop"}},
	{Name: "dead-again", Does: "follows no change after its restart", Features: []string{"restart"}, Runs: []string{"restart-change", "restart-ready", "restart-change-ipv6"}},
	{Name: "dead", Does: "follows no change from the scenario on", Features: []string{"api-outage", "rollout", "scale"}, Faults: []string{"*:dead:24s:1h"}, Runs: []string{"api-relist", "api-away", "scale-zero", "scale-zero-ipv6"}},
	{Name: "udp-left", Does: "never deletes an endpoint of UDP or the conntrack entry of its flows", Features: []string{"udp"}, Runs: []string{"scale-zero", "rollout-cluster", "rollout-node-port", "rollout-cluster-ip", "scale-zero-ipv6"}},
	{Name: "udp-left6", Does: "does so too, in runs with IPv6", Features: []string{"removed-flows"}, Faults: []string{"node-1:udp-left", "node-2:udp-left", "node-3:udp-left"},
		Runs: []string{"rollout-cluster-ipv6", "rollout-node-port-ipv6", "rollout-cluster-ip-ipv6", "rollout-cluster-dual-stack"}},
	{Name: "lose-some", Does: "drops one of 300 new connections", Features: []string{"undisturbed"}, Faults: []string{"*:rule:30s:1h:in " + webTCP + "tcp flags & (syn|ack) == syn numgen inc mod 300 == 7 drop"},
		Runs: []string{"quiet"}},
	{Name: "reset-open", Does: "resets open connections after 40 s", Features: []string{"open-connections"},
		Faults: []string{"*:rule:40s:1h:tracked " + webTCP + "ct state established numgen inc mod 50 == 7 reject with tcp reset"}, Runs: []string{"quiet"}},
	{Name: "lose-datagrams", Does: "drops one of 20 datagrams", Features: []string{"udp"}, Faults: []string{"*:rule:40s:1h:in " + webUDP + "numgen inc mod 20 == 7 drop"},
		Runs: []string{"quiet", "upgrade-itself"}},
	{Name: "lose-some6", Does: "drops one of 300 new connections over IPv6", Features: []string{"undisturbed"}, Faults: []string{"*:rule:1s:1h:in " + webTCP6 + "tcp flags & (syn|ack) == syn numgen inc mod 300 == 7 drop"},
		Runs: []string{"quiet-ipv6"}},
	{Name: "reset-open6", Does: "resets open connections over IPv6 after 40 s", Features: []string{"open-connections"},
		Faults: []string{"*:rule:40s:1h:tracked " + webTCP6 + "ct state established numgen inc mod 50 == 7 reject with tcp reset"}, Runs: []string{"quiet-ipv6"}},
	{Name: "lose-datagrams6", Does: "drops one of 20 datagrams over IPv6", Features: []string{"udp"}, Faults: []string{"*:rule:40s:1h:in " + webUDP6 + "numgen inc mod 20 == 7 drop"},
		Runs: []string{"quiet-ipv6"}},
	{Name: "ignore-removal-of-node", Does: "passes health checks on a node that the autoscaler removes", Features: []string{"proxy-terminating-nodes"}, Faults: []string{"*:ignore-removal-of-node"},
		Flags: []string{"--healthz-bind-address="}, Runs: []string{"drain-scaledown"}},
	{Name: "ignore-damage", Does: "does not notice that another program deleted its rules", Features: []string{"interference"}, Runs: []string{"interference-flush"}},
	{Name: "take-table", Does: "deletes the rules of another program", Features: []string{"interference"}, Faults: []string{"*:take-table:1s:1h:inet stale-policy"}, Runs: []string{"interference-stale-allow"}},
	{Name: "early-health", Does: "passes health checks when it starts again, 20 s before it reads the API", Features: []string{"drain"},
		Flags: []string{"--healthz-bind-address="}, Faults: []string{"*:early-health"}, Runs: []string{"drain-reboot"}},
	{Name: "lying-health", Does: "passes health checks after the last local endpoint is removed", Features: []string{"external-policy-local"}, Faults: []string{"*:lying-health"}, Runs: []string{"drain-local", "rollout-local"}},
}

// withFlags are the bundled proxier with flags that break a promise.
var withFlags = []Mutant{
	{Name: "masquerade-all", Does: "masquerades all traffic to cluster IPs", Features: []string{"cluster-ip"}, Flags: []string{"--masquerade-all"}},
	{Name: "no-fallback", Does: "does not use serving terminating endpoints", Features: []string{"terminating-endpoints"}, Flags: []string{"--terminating-fallback=false"}, Runs: []string{"rollout-local", "rollout-local-ipv6", "rollout-local-dual-stack"}},
	{Name: "wrong-node-address", Does: "serves node ports only at another address of the node", Features: []string{"node-port"}, Flags: []string{"--nodeport-addresses=198.51.100.0/24,2001:db8:2::/64"}},
	{Name: "late", Does: "applies changes up to 30 s late", Features: []string{"rollout", "api-outage"}, Flags: []string{"--ipvs-min-sync-period=30s"}, Runs: []string{"rollout-external-ip", "api-delay", "others-rollout"}},
}

// documented are proxies with a bug or a limitation that is documented, beside one without it.
var documented = []Mutant{
	{Name: "ipvs-clients", Does: "the bundled proxier, which does not distinguish clients inside the cluster (docs/proxier.md)", Features: []string{"external-policy-local"}, Subject: "bundled", Twin: "kube-proxy@v1.37.1/nftables"},
	{Name: "k8s-85643", Does: "kube-proxy before KEP-1669: terminating endpoints are not used", Features: []string{"terminating-endpoints"}, Subject: "kube-proxy@v1.25.3/iptables", Twin: "kube-proxy@v1.37.1/iptables", Runs: []string{"rollout-local"}},
	{Name: "k8s-92019", Does: "kube-proxy that leaves a pod unready that became ready during a restart", Features: []string{"restart"}, Subject: "kube-proxy@v1.25.3/ipvs", Twin: "kube-proxy@v1.37.1/ipvs", Runs: []string{"restart-ready"}},
	{Name: "k8s-71515", Does: "kube-proxy that deletes an endpoint which is ready again", Features: []string{"flap"}, Subject: "kube-proxy@v1.12.2/ipvs", Twin: "kube-proxy@v1.37.1/ipvs", Runs: []string{"flap"}},
	{Name: "k8s-122740", Does: "kube-proxy that moves flows of datagrams to other pods when it starts", Features: []string{"kept-flows"}, Subject: "kube-proxy@v1.30.14/iptables", Twin: "kube-proxy@v1.37.1/iptables", Runs: []string{"restart-term", "restart-term-ipv6", "restart-term-dual-stack"}},
	{Name: "k8s-91236", Does: "kube-proxy that leaves flows of datagrams lost after their Service was created again", Features: []string{"removed-flows"}, Subject: "kube-proxy@v1.19.16/iptables", Twin: "kube-proxy@v1.37.1/iptables", Runs: []string{"recreate-node-port"}},
	{Name: "k8s-141371", Does: "kube-proxy that goes on answering flows of datagrams to a deleted Service", Features: []string{"deletion"}, Subject: "kube-proxy@v1.37.1/iptables", Twin: "kube-proxy@v1.37.1/ipvs", Runs: []string{"recreate-node-port"}},
	{Name: "k8s-139628", Does: "kube-proxy that sends flows of datagrams to the pods that a Service had last", Features: []string{"removed-flows"}, Subject: "kube-proxy@v1.36.1/iptables", Twin: "kube-proxy@v1.37.1/iptables", Runs: []string{"scale-zero", "scale-zero-ipv6"}},
	{Name: "before-kep-3836", Does: "kube-proxy before KEP-3836: passes health checks on a node that the autoscaler removes", Features: []string{"proxy-terminating-nodes"}, Subject: "kube-proxy@v1.26.0/iptables", Twin: "kube-proxy@v1.37.1/iptables", Runs: []string{"drain-scaledown"}},
	{Name: "full-sync", Does: "kube-proxy that writes the rules of all Services at each change", Features: []string{"many-services"}, Subject: "kube-proxy@v1.24.17/iptables", Twin: "bundled", Runs: []string{"cost"}},
	{Name: "endpoints-only", Does: "kube-proxy from before EndpointSlices, hints and the label of another proxy", Features: []string{"service-proxy-name", "hints"}, Subject: "kube-proxy@v1.12.10/iptables", Twin: "kube-proxy@v1.37.1/iptables"},
}
