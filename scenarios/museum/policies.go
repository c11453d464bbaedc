package museum

import (
	"maps"
	"time"

	"github.com/hitless/hitless/record"
)

// policies are bugs of traffic policies, and of nodes that leave the load balancer.
func policies() []Entry {
	changed := pattern{occasions: atSteps("change externalTrafficPolicy"), name: "changes of externalTrafficPolicy", protocol: record.ProtocolNew,
		classes: []record.Class{record.ConnectTimeout}, least: 20 * time.Second, pause: 5 * time.Second, until: atSteps("put back externalTrafficPolicy")}.search
	toLocal := map[string]string{"changes": "externalTrafficPolicy", "trafficPolicy": "Cluster", "replicas": "3", "between": "30s", "lanes": "tcp-new"}
	toLocalByNodePort := maps.Clone(toLocal)
	toLocalByNodePort["target"] = "nodePort"
	patched := atSteps("object patch Service/default/web")
	const oldSlice = "object apply EndpointSlice/default/web-1"
	const policyChanges = "changes of externalTrafficPolicy"
	lostFromThere := func(classes ...record.Class) func(*Record) Finding {
		return pattern{occasions: patched, name: policyChanges, protocol: record.ProtocolNew, classes: classes, least: 45 * time.Second, toEnd: true}.search
	}
	const look = "Connections time out between the two steps, on paths over every node, although each node has a ready pod."
	return []Entry{
		{
			ID: "k8s-71596", Title: "a load balancer's address with externalTrafficPolicy: Local is forwarded to other nodes' pods, and their replies are lost",
			Issue: upstream + "/issues/71596", Fix: upstream + "/pull/72432", Affected: "kube-proxy up to v1.13 in mode ipvs", Fixed: "v1.14.0 (#72432)",
			Modes: []string{ipvs}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.13.12/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.14.10/ipvs"},
			Scenario: "policy", Set: toLocal, Signature: changed,
		},
		{
			ID: "k8s-66062", Title: "a NodePort with externalTrafficPolicy: Local is forwarded to other nodes' pods, and their replies are lost",
			Issue: upstream + "/issues/66062", Fix: upstream + "/pull/66064", Affected: "kube-proxy up to v1.11.3 in mode ipvs", Fixed: "v1.11.4, v1.12.0 (#66064)",
			Modes: []string{ipvs}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.11.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.11.10/ipvs"},
			Scenario: "policy", Set: toLocalByNodePort, Signature: changed,
		},
		withTimeline(Entry{
			ID: "k8s-75262", Title: "a client in the cluster is refused at the load balancer's address when its node has no pod",
			Issue: upstream + "/issues/75262", Fix: upstream + "/pull/97081", Affected: "kube-proxy up to v1.23 in mode ipvs", Fixed: "v1.24.0 (#97081)",
			Modes: []string{ipvs},
			Look:  "After the change of externalTrafficPolicy, the client's connections are refused, although a pod on another node is ready.",
			Bad:   Specimen{Subject: "kube-proxy@v1.23.17/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.24.17/ipvs"},
			Signature: pattern{occasions: patched, name: policyChanges, protocol: record.ProtocolNew,
				classes: refusing, least: minLasting, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-65387", Title: "a node is not served at the load balancer's address when it has no pod",
			Issue: upstream + "/issues/65387", Fix: upstream + "/pull/77523", Affected: "kube-proxy up to v1.14 in mode iptables", Fixed: "v1.15.0 (#77523)",
			Modes: []string{iptables},
			Look:  "After the change of externalTrafficPolicy, the node's own connections are lost, although a pod on another node is ready.",
			Bad:   Specimen{Subject: "kube-proxy@v1.14.10/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.15.12/iptables"},
			Signature: lostFromThere(record.ConnectTimeout),
		}),
		withTimeline(Entry{
			ID: "k8s-121909", Title: "an external IP of a Service with externalTrafficPolicy: Local is refused, although the node has a pod",
			Issue: upstream + "/issues/121909", Fix: upstream + "/pull/121919", Affected: "kube-proxy v1.26, v1.27, v1.28.0 to v1.28.5 and v1.29.0 in mode ipvs", Fixed: "v1.28.6, v1.29.1, v1.30.0 (#121919)",
			Modes: []string{ipvs},
			Look:  "After the change of externalTrafficPolicy, connections to the external IP are refused, although the node has a ready pod.",
			Bad:   Specimen{Subject: "kube-proxy@v1.29.0/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.29.15/ipvs"},
			Signature: lostFromThere(refusing...),
		}),
		withTimeline(Entry{
			ID: "k8s-132456", Title: "in mode nftables a node is not served at the load balancer's address when it has no pod",
			Issue: upstream + "/issues/131765", Fix: upstream + "/pull/132456", Affected: "kube-proxy up to v1.33.5 in mode nftables", Fixed: "v1.33.6, v1.34.0 (#132456)",
			Modes: []string{nftables},
			Look:  "After the change of externalTrafficPolicy, the node's own connections time out, although a pod on another node is ready.",
			Bad:   Specimen{Subject: "kube-proxy@v1.32.11/nftables"}, Good: Specimen{Subject: "kube-proxy@v1.33.6/nftables"},
			Signature: lostFromThere(record.ConnectTimeout),
		}),
		withTimeline(Entry{
			ID: "k8s-106497", Title: "internalTrafficPolicy: Local also stops traffic from outside the cluster on nodes without a pod",
			Issue: upstream + "/pull/106497", Fix: upstream + "/pull/106497", Affected: "kube-proxy v1.22 and v1.23 in mode iptables", Fixed: "v1.24.0 (#106497)",
			Modes: []string{iptables},
			Look:  "After the change of internalTrafficPolicy, the path over the node without a pod loses connections. It should lose none: traffic of load balancers is not internal.",
			Bad:   Specimen{Subject: "kube-proxy@v1.23.17/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.24.17/iptables"},
			Signature: pattern{occasions: patched, name: "changes of internalTrafficPolicy", protocol: record.ProtocolNew, least: minLasting, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-97824", Title: "behind a firewall for node ports no health check of a Service with externalTrafficPolicy: Local is answered",
			Issue: upstream + "/issues/97225", Fix: upstream + "/pull/97824", Affected: "kube-proxy up to v1.20 in mode iptables", Fixed: "v1.21.0 (#97824)",
			Modes: []string{iptables},
			Look:  "The load balancer removes all nodes, and no connection is answered from then on. The proxy must accept connections to the Service's health check node port.",
			Bad:   Specimen{Subject: "kube-proxy@v1.20.15/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.21.14/iptables"},
			Signature: pattern{occasions: atSteps("node run node-2 iptables"), name: "firewalls", protocol: record.ProtocolNew, within: 25 * time.Second,
				least: 45 * time.Second, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-110208", Title: "pods whose node is in the field deprecatedTopology are not local to any node",
			Issue: upstream + "/issues/110208", Fix: upstream + "/pull/110245", Fixed: "v1.22.11 (#110245)", Until: "v1.23.0",
			Affected: "kube-proxy v1.22.0 to v1.22.10; later minors do not read the field either, because no supported upgrade leaves it",
			Look:     "All nodes lose connections of a Service with externalTrafficPolicy: Local from the new EndpointSlice on. They fail their health checks, and the load balancer removes them.",
			Bad:      Specimen{Subject: "kube-proxy@v1.22.10/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.22.17/iptables"},
			Signature: onReplay(namesPods(oldSlice, map[string]string{"10.244.1.2": "node-1", "10.244.2.2": "node-2"}, pattern{occasions: atSteps(oldSlice),
				name: "EndpointSlices without nodeName", protocol: record.ProtocolNew,
				within: 20 * time.Second, least: 45 * time.Second, toEnd: true}.search)), // from the removal of the last node on
		}),
		withTimeline(Entry{
			ID: "k8s-122614", Title: "a change of loadBalancerSourceRanges has no effect: a client that is not allowed is served",
			Issue: upstream + "/pull/122614", Fix: upstream + "/pull/122614", Affected: "kube-proxy v1.29 in mode nftables", Fixed: "v1.30.0 (#122614)", Modes: []string{nftables},
			Look: "Lane tcp-new loses nothing after the change. It should lose everything, because the client's address is in no range.",
			Bad:  Specimen{Subject: "kube-proxy@v1.29.15/nftables"}, Good: Specimen{Subject: "kube-proxy@v1.30.14/nftables"},
			Signature: answering{occasions: atSteps("object patch Service/default/web"), name: "changes of loadBalancerSourceRanges", protocol: record.ProtocolNew,
				least: 30 * time.Second}.search,
		}),
		{
			ID: "k8s-116470", Title: "a node without pods that the autoscaler removes gets connections until it is gone",
			Issue: "https://github.com/kubernetes/enhancements/issues/3836", Fix: upstream + "/pull/116470",
			Affected: "kube-proxy up to v1.29; v1.28 and v1.29 not with the feature gate KubeProxyDrainingTerminatingNodes", Fixed: "v1.30.0 (KEP-3836, #116470, by default since #122914)",
			Look: "The path over the removed node loses connections until the load balancer notices. With the fix the load balancer leaves the node before its end.",
			Bad:  Specimen{Subject: "kube-proxy@v1.29.15/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.30.14/iptables"},
			Scenario: "drain", Set: map[string]string{"what": "scaledown", "trafficPolicy": "Cluster", "lanes": "tcp-new"},
			Signature: pattern{occasions: atBegins("take the power from "), name: "removals of a node", protocol: record.ProtocolNew, onNode: true,
				least: 5 * time.Second}.search,
		},
		{
			ID: "k8s-50977", Title: "a drain behind externalTrafficPolicy: Local loses the node's connections until the load balancer notices",
			Issue: upstream + "/issues/50977", Fix: upstream + "/pull/113363", Affected: "kube-proxy up to v1.25", Fixed: "v1.26.0 (KEP-1669, #113363)",
			Look: "The path over the drained node loses connections from the eviction until the load balancer removes the node.",
			Bad:  Specimen{Subject: "kube-proxy@v1.25.3/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.26.0/iptables"},
			Scenario: "drain", Set: map[string]string{"what": "drain", "trafficPolicy": "Local", "lanes": "tcp-new"},
			Signature: pattern{occasions: atBegins("evict the pods of "), name: "evictions", protocol: record.ProtocolNew, onNode: true,
				least: 5 * time.Second}.search,
		},
		{
			ID: "k8s-72236", Title: "programs of a node answer at the addresses of Services",
			Issue: upstream + "/issues/72236", Fix: upstream + "/pull/108460", Affected: "kube-proxy up to v1.25 in mode ipvs", Fixed: "v1.26.0 (#108460)",
			Modes: []string{ipvs},
			Look:  "Lane unserved connects to the cluster IP at the port of kube-proxy's own health check, which no Service has, and is answered. It should be refused.",
			Bad:   Specimen{Subject: "kube-proxy@v1.25.16/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.26.0/ipvs"},
			Scenario: "rollout", Set: map[string]string{"client": "pod", "target": "clusterIP", "trafficPolicy": "Cluster", "unserved": "10256"},
			Signature: unservedAnswers,
		},
		k8s85643(),
	}
}
