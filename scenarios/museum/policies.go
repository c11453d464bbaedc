package museum

import (
	"time"

	"github.com/hitless/hitless/record"
)

// policies are bugs of traffic policies, and of nodes that leave the load balancer.
func policies() []Entry {
	changed := pattern{occasions: atSteps("change externalTrafficPolicy"), name: "changes of externalTrafficPolicy", protocol: record.ProtocolNew,
		classes: []record.Class{record.ConnectTimeout}, least: 20 * time.Second, pause: 5 * time.Second, until: atSteps("put back externalTrafficPolicy")}.search
	toLocal := map[string]string{"changes": "externalTrafficPolicy", "trafficPolicy": "Cluster", "replicas": "3", "between": "30s", "lanes": "tcp-new"}
	toLocalByNodePort := map[string]string{"changes": "externalTrafficPolicy", "trafficPolicy": "Cluster", "replicas": "3", "between": "30s",
		"target": "nodePort", "lanes": "tcp-new"}
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
		k8s85643(),
	}
}
