package museum

import (
	"time"

	"github.com/hitless/hitless/record"
)

// stalledSyncs are bugs after which a proxy no longer follows the Service, or follows the wrong endpoint.
func stalledSyncs() []Entry {
	const staleSlice = "object apply EndpointSlice/default/web-old"
	return []Entry{
		withTimeline(Entry{
			ID: "k8s-134147", Title: "an emptied IPVS table is not repaired: the node refuses all connections",
			Issue: upstream + "/issues/134147", Fix: upstream + "/pull/135631",
			Affected: "kube-proxy v1.34.0 to v1.34.3 and v1.35.0 in mode ipvs", Fixed: "v1.34.4, v1.35.1, v1.36.0 (#135631)", Modes: []string{ipvs},
			Look: "The node whose table was emptied refuses connections to the end of the run. With the fix the periodic sync repairs it within 30 s.",
			Bad:  Specimen{Subject: "kube-proxy@v1.34.3/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.34.4/ipvs"},
			Signature: pattern{occasions: atSteps("proxy flush "), name: "flushes", protocol: record.ProtocolNew, onNode: true, classes: refusing,
				least: minLasting, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-139516", Title: "a Service with long names stops all updates: each later rollout is lost",
			Issue: upstream + "/pull/139516", Fix: upstream + "/pull/139516", Affected: "kube-proxy v1.29 to v1.36 in mode nftables", Fixed: "v1.37 (#139516)", Modes: []string{nftables},
			Look: "All nodes lose connections from the end of the old pod on, until their health checks fail. The proxy's log has the refused transaction.",
			Bad:  Specimen{Subject: "kube-proxy@v1.36.3/nftables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/nftables"},
			// After about a minute the proxies' health checks fail, and the load balancer removes the nodes.
			Signature: pattern{occasions: atExits, name: "ends of pods", protocol: record.ProtocolNew, least: 45 * time.Second}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-135266", Title: "a stale endpoint with the address of a ready pod hides the pod",
			Issue: upstream + "/issues/135266", Fix: upstream + "/pull/135593", Affected: "kube-proxy v1.21 to v1.35", Fixed: "v1.36.0 (#135593)",
			Look: "Nodes refuse connections while the stale EndpointSlice exists, although the pod is ready.",
			Bad:  Specimen{Subject: "kube-proxy@v1.35.4/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.36.0/iptables"},
			Signature: namesPods(staleSlice, map[string]string{"10.244.1.2": "node-1"}, pattern{occasions: atSteps(staleSlice), name: "stale EndpointSlices",
				protocol: record.ProtocolNew, classes: refusing, least: minLasting, toEnd: true}.search),
		}),
		withTimeline(Entry{
			ID: "k8s-75290", Title: "a Service with another node's address as its external IP cuts that node off",
			Issue: upstream + "/issues/75290", Affected: "kube-proxy v1.11 and later in mode ipvs; seen up to v1.37.1", Fixed: notFixed,
			Look: "After the creation of the Service, the path over node-2, whose address it has, loses connections to the pod of node-1.",
			Bad:  Specimen{Subject: "kube-proxy@v1.37.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/nftables"},
			Signature: pattern{occasions: over("node-2", atSteps("object apply Service/default/hijack")), name: "Services with a node's address",
				protocol: record.ProtocolNew, onNode: true, least: 45 * time.Second, pause: 2 * time.Second}.search,
		}),
		{
			ID: "flushed-ruleset", Title: "a firewall whose reload flushes all rules deletes the proxy's, and the proxy writes them again at its next change or after an hour",
			Issue: "https://github.com/spatiumddi/spatiumddi/pull/382", Affected: "kube-proxy in mode nftables; seen in v1.37.1", Fixed: notFixed,
			Look: "The node whose firewall was reloaded loses connections to the end of the run.",
			Bad:  Specimen{Subject: "kube-proxy@v1.37.1/nftables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/iptables"},
			Scenario: "interference",
			// A probe of the node can take the port of a masqueraded connection, because the reload deleted the chain that would change it. It then
			// fails, and the change of the endpoint makes the proxy write its rules again. Few probes make that rare.
			Set: map[string]string{"what": "reload", "lasts": "75s", "lanes": "tcp-new", "readinessPeriod": "10s"},
			Signature: pattern{occasions: atBegins("reload the firewall of "), name: "reloads", protocol: record.ProtocolNew, onNode: true,
				least: minLasting, toEnd: true}.search,
		},
		withTimeline(Entry{
			ID: "k8s-111661", Title: "a node whose proxy cannot sync answers health checks, and stays in the load balancer",
			Issue: upstream + "/issues/115825", Fix: upstream + "/pull/111661", Affected: "kube-proxy up to v1.26 in modes iptables and ipvs", Fixed: "v1.27.0 (#111661)",
			Modes: []string{iptables, ipvs},
			Look:  "The path over node-1 loses connections to the end of the run. With the fix the load balancer removes the node after about a minute.",
			Bad:   Specimen{Subject: "kube-proxy@v1.26.15/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.27.16/iptables"},
			Signature: pattern{occasions: atExits, name: "ends of pods", protocol: record.ProtocolNew, least: 110 * time.Second, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-114815", Title: "programs of a node are refused at an address of the node that is also a load balancer's",
			Issue: upstream + "/issues/114815", Fix: upstream + "/pull/115019", Affected: "kube-proxy v1.26 to v1.27.1 in mode ipvs", Fixed: "v1.27.2 (#115019)",
			Modes: []string{ipvs},
			Look:  "Lane unserved is never answered, although the node has the address itself. With the fix kube-proxy's own health check answers there from the next sync on.",
			Bad:   Specimen{Subject: "kube-proxy@v1.27.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.27.2/ipvs"},
			Signature: neverServed,
		}),
		withTimeline(Entry{
			ID: "k8s-68194", Title: "in mode ipvs the rules that accept forwarded packets are never written",
			Issue: upstream + "/issues/68194", Fix: upstream + "/pull/68786", Affected: "kube-proxy up to v1.11.9 in mode ipvs", Fixed: "v1.11.10, v1.12.0 (#68786)",
			Modes: []string{ipvs},
			Look:  "The path over the node whose firewall drops forwarded packets loses all connections to the end of the run.",
			Bad:   Specimen{Subject: "kube-proxy@v1.11.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.11.10/ipvs"},
			Signature: pattern{occasions: atSteps("node run node-1 iptables -P FORWARD DROP"), name: "firewalls that drop", protocol: record.ProtocolNew, onNode: true,
				least: 45 * time.Second, toEnd: true}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-59976", Title: "all nodes answer ARP requests for a load balancer's address",
			Issue: upstream + "/issues/59976", Affected: "kube-proxy in mode ipvs; seen up to v1.37.1", Fixed: notFixed + "; --ipvs-strict-arp (v1.13.6, v1.14.2) avoids it",
			Look: "More than one node answers an ARP request for the Service's address; at most one should. On a network where a host finds load balancers by ARP, its packets go to whichever node answers first.",
			Bad:  Specimen{Subject: "kube-proxy@v1.37.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/nftables"},
			Signature: answersOfNodes,
		}),
		k8s71071(),
	}
}
