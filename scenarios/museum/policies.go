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
			Issue: upstream + "/issues/66062", Fix: upstream + "/pull/66064", Affected: "kube-proxy up to v1.11.2 in mode ipvs", Fixed: "v1.12.0 (#66064)",
			Modes: []string{ipvs}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.11.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.11.10/ipvs"},
			Scenario: "policy", Set: toLocalByNodePort, Signature: changed,
		},
		withTimeline(Entry{
			ID: "k8s-75262", Title: "a client in the cluster is refused at the load balancer's address when its node has no pod",
			Issue: upstream + "/issues/75262", Fix: upstream + "/pull/97081", Affected: "kube-proxy up to v1.23 in mode ipvs", Fixed: "v1.24.0 (#97081)",
			Modes: []string{ipvs},
			Look:  "From the change of externalTrafficPolicy on the client's connections are refused, although a pod on another node is ready.",
			Bad:   Specimen{Subject: "kube-proxy@v1.23.17/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.24.17/ipvs"},
			Signature: pattern{occasions: atSteps("object patch Service/default/web"), name: "changes of externalTrafficPolicy", protocol: record.ProtocolNew,
				classes: refusing, least: minLasting, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-65387", Title: "a node is not served at the load balancer's address when it has no pod",
			Issue: upstream + "/issues/65387", Fix: upstream + "/pull/77523", Affected: "kube-proxy up to v1.14 in mode iptables", Fixed: "v1.15.0 (#77523)",
			Modes: []string{iptables},
			Look:  "From the change of externalTrafficPolicy on the node's own connections are lost, although a pod on another node is ready.",
			Bad:   Specimen{Subject: "kube-proxy@v1.14.10/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.15.12/iptables"},
			Signature: pattern{occasions: atSteps("object patch Service/default/web"), name: "changes of externalTrafficPolicy", protocol: record.ProtocolNew,
				least: 45 * time.Second, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-121909", Title: "a client in the cluster is refused at an external IP when its node has no pod",
			Issue: upstream + "/issues/121909", Affected: "kube-proxy v1.25 and later in mode iptables; seen up to v1.37.1", Fixed: notFixed, Modes: []string{iptables},
			Look: "From the change of externalTrafficPolicy on the client's connections are refused, although a pod on another node is ready.",
			Bad:  Specimen{Subject: "kube-proxy@v1.37.1/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.24.17/iptables"},
			Signature: pattern{occasions: atSteps("object patch Service/default/web"), name: "changes of externalTrafficPolicy", protocol: record.ProtocolNew,
				least: 45 * time.Second, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-122614", Title: "a change of loadBalancerSourceRanges has no effect: a client that is not allowed is served",
			Issue: upstream + "/issues/122614", Affected: "kube-proxy v1.29 in mode nftables", Fixed: "v1.30.0", Modes: []string{nftables},
			Look: "Lane tcp-new loses nothing after the change. It should lose everything, because the client's address is in no range.",
			Bad:  Specimen{Subject: "kube-proxy@v1.29.15/nftables"}, Good: Specimen{Subject: "kube-proxy@v1.30.14/nftables"},
			Signature: answering{occasions: atSteps("object patch Service/default/web"), name: "changes of loadBalancerSourceRanges", protocol: record.ProtocolNew,
				least: 30 * time.Second}.search,
		}),
		{
			ID: "k8s-116470", Title: "a node without pods that the autoscaler removes gets connections until it is gone",
			Issue: "https://github.com/kubernetes/autoscaler/issues/1907", Fix: upstream + "/pull/116470", Affected: "kube-proxy up to v1.29", Fixed: "v1.30.0 (KEP-3836)",
			Look: "The path over the removed node loses connections until the load balancer notices. With the fix the load balancer leaves the node before its end.",
			Bad:  Specimen{Subject: "kube-proxy@v1.29.15/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.30.14/iptables"},
			Scenario: "drain", Set: map[string]string{"what": "scaledown", "trafficPolicy": "Cluster", "lanes": "tcp-new"},
			Signature: pattern{occasions: atSteps("take the power from "), name: "removals of a node", protocol: record.ProtocolNew, onNode: true,
				least: 5 * time.Second}.search,
		},
		{
			ID: "k8s-50977", Title: "a drain behind externalTrafficPolicy: Local loses the node's connections until the load balancer notices",
			Issue: upstream + "/issues/50977", Affected: "kube-proxy up to v1.25", Fixed: "v1.26.0 (KEP-1669)",
			Look: "The path over the drained node loses connections from the eviction until the load balancer removes the node.",
			Bad:  Specimen{Subject: "kube-proxy@v1.25.3/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.26.0/iptables"},
			Scenario: "drain", Set: map[string]string{"what": "drain", "trafficPolicy": "Local", "lanes": "tcp-new"},
			Signature: pattern{occasions: atSteps("evict the pods of "), name: "evictions", protocol: record.ProtocolNew, onNode: true,
				least: 5 * time.Second}.search,
		},
		k8s85643(),
	}
}
