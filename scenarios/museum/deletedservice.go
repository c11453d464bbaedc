package museum

import (
	"time"

	"github.com/hitless/hitless/record"
)

// deletedServices are bugs of Services that are deleted: open connections hang, or the Service continues to answer.
func deletedServices() []Entry {
	deleted := atSteps("object delete Service/default/web")
	return []Entry{
		withTimeline(Entry{
			ID: "k8s-71894", Title: "a Service is deleted, and its open connections hang at once",
			Issue: upstream + "/issues/71894", Fix: upstream + "/pull/71895",
			Affected: "kube-proxy up to v1.12.4, v1.13.0 and v1.13.1 in mode ipvs, and since v1.13.11, v1.14.7 and v1.15.4 again; seen in v1.37.1",
			Fixed:    "v1.12.5, v1.13.2 (#71895); #80942, which fixed k8s-80403, removed that on purpose: a deleted Service needs no graceful end", Modes: []string{ipvs},
			Look: "Lane tcp-long loses attempts from the deletion on. With the fix open connections are served until their clients close them. The versions with it have k8s-80403 instead.",
			Bad:  Specimen{Subject: "kube-proxy@v1.12.4/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.10/ipvs"},
			// An open connection gets no reply. The connections that replace it find no Service.
			Signature: pattern{occasions: deleted, name: "deletions of the Service", protocol: record.ProtocolLong, includes: record.ReplyTimeout,
				least: 20 * time.Second}.search,
		}),
		{
			ID: "k8s-80403", Title: "a deleted Service continues to answer new connections",
			Issue: upstream + "/issues/80403", Fix: upstream + "/pull/80942",
			Affected: "kube-proxy v1.12.5 to v1.12.10, v1.13.2 to v1.13.10, v1.14.0 to v1.14.6 and v1.15.0 to v1.15.3 in mode ipvs",
			Fixed:    "v1.13.11, v1.14.7, v1.15.4 (#80942)", Modes: []string{ipvs},
			Look: "Lane tcp-new is served between the two steps, although there is no Service. It should be refused.",
			Bad:  Specimen{Subject: "kube-proxy@v1.14.3/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.15.12/ipvs"},
			Scenario: "recreate", Set: map[string]string{"away": "60s", "target": "clusterIP", "client": "pod", "trafficPolicy": "Cluster", "lanes": "tcp-new"},
			Signature: answering{occasions: atSteps("delete the Service"), name: "deletions of the Service", protocol: record.ProtocolNew,
				least: 30 * time.Second, until: atSteps("create it again")}.search,
		},
		withTimeline(Entry{
			ID: "k8s-141371", Title: "a UDP flow to a deleted Service is still answered",
			Issue: upstream + "/pull/141371", Fix: upstream + "/pull/141371", Affected: "kube-proxy v1.32 and later in modes iptables and nftables",
			Fixed: notFixed + " in v1.37; #141371 is merged for a later minor",
			Look:  "Lane udp-sticky loses nothing after the deletion, and lane tcp-new loses everything. Both should lose everything.",
			Bad:   Specimen{Subject: "kube-proxy@v1.37.1/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/ipvs"},
			Signature: answering{occasions: deleted, name: "deletions of the Service", protocol: record.ProtocolSticky,
				least: 30 * time.Second, silent: record.ProtocolNew}.search,
		}),
	}
}
