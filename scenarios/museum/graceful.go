package museum

import (
	"time"

	"github.com/hitless/hitless/record"
)

// graceful are bugs of graceful termination in mode ipvs, and of the proxy's own restarts.
func graceful() []Entry {
	restarted := atSteps("restart the proxy of ")
	const shortLossRate = 100 // of three nodes, each then has an attempt at least every 100 ms or so
	restart := map[string]string{"which": "each", "lanes": "tcp-new", "signal": "TERM", "change": "off", "trafficPolicy": "Cluster"}
	return []Entry{
		{
			ID: "k8s-73154", Title: "a starting proxy sets all endpoints to weight 0 until its first sync has ended",
			Issue: upstream + "/issues/73154", Fix: upstream + "/pull/75283",
			Affected: "kube-proxy v1.11.5 to v1.11.10, v1.12.2 to v1.12.7, v1.13.0 to v1.13.5 and v1.14.0 in mode ipvs",
			Fixed:    "v1.12.8, v1.13.6, v1.14.1 (#75283)", Modes: []string{ipvs},
			Look: "Each node refuses connections for 120 ms or longer when its proxy starts. With the fix the loss is shorter.",
			Bad:  Specimen{Subject: "kube-proxy@v1.13.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.13.12/ipvs"},
			Scenario: "restart", Set: restart, Rate: shortLossRate,
			Signature: pattern{occasions: restarted, name: "restarts of a proxy", protocol: record.ProtocolNew, onNode: true, classes: refusing,
				least: 120 * time.Millisecond}.search,
		},
		{
			ID: "k8s-75360", Title: "a starting proxy removes all rules and writes them again",
			Issue: upstream + "/issues/75360", Fix: upstream + "/pull/76109", Affected: "kube-proxy up to v1.14.0 in mode iptables", Fixed: "v1.14.1 (#76109)",
			Modes: []string{iptables}, Look: "Connections over a node time out for some 0.3 s when its proxy starts. No node should lose any.",
			Bad: Specimen{Subject: "kube-proxy@v1.14.0/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.14.10/iptables"},
			Scenario: "restart", Set: restart, Rate: shortLossRate,
			Signature: pattern{occasions: restarted, name: "restarts of a proxy", protocol: record.ProtocolNew, onNode: true,
				classes: []record.Class{record.ConnectTimeout}, least: 200 * time.Millisecond}.search,
		},
		withTimeline(Entry{
			ID: "k8s-71834", Title: "with sessionAffinity: ClientIP a client's new connections go to its pod that has ended",
			Issue: upstream + "/pull/71834", Fix: upstream + "/pull/71834",
			Affected: "kube-proxy v1.11.5, v1.11.6, v1.12.2 to v1.12.4, v1.13.0 and v1.13.1 in mode ipvs", Fixed: "v1.11.7, v1.12.5, v1.13.2 (#71834)", Modes: []string{ipvs},
			Look: "New connections of one client fail from the end of its pod on, although another pod is ready.",
			Bad:  Specimen{Subject: "kube-proxy@v1.12.4/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.10/ipvs"},
			Signature: pattern{occasions: atExits, name: "ends of pods", protocol: record.ProtocolNew, least: 50 * time.Second}.search,
		}),
		{
			ID: "k8s-81775", Title: "a client that uses a port again is sent to a pod that has ended",
			Issue: upstream + "/issues/81775", Fix: upstream + "/pull/71834",
			Affected: "kube-proxy v1.13.0 and v1.13.1 in mode ipvs", Fixed: "v1.13.2 (#71834 sets expire_nodest_conn)", Modes: []string{ipvs},
			Look: "New connections fail for more than a minute after the end of a pod, if their five-tuple was used before.",
			Bad:  Specimen{Subject: "kube-proxy@v1.13.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.13.12/ipvs"},
			Scenario: "rollout", Set: map[string]string{"reuse": "10s", "trafficPolicy": "Cluster", "replicas": "2", "rollouts": "1", "settle": "75s",
				"shutdownDelay": "5s", "gracePeriod": "10s", "lanes": "tcp-new"},
			Signature: pattern{occasions: atExits, name: "ends of pods", protocol: record.ProtocolNew, within: 3 * time.Second, least: 50 * time.Second,
				pause: 15 * time.Second}.search,
		},
		{
			ID: "k8s-57841", Title: "an endpoint that becomes unready is deleted at once: its open connections hang",
			Issue: upstream + "/issues/57841", Fix: upstream + "/pull/66012",
			Affected: "kube-proxy up to v1.11.4, v1.12.0 and v1.12.1 in mode ipvs", Fixed: "v1.11.5, v1.12.2, v1.13.0 (graceful termination, #66012)", Modes: []string{ipvs},
			Look: "Lane tcp-long gets no replies on the connections to a pod that is unready and alive. It opens each of them again, which costs few attempts. Lane tcp-new loses nothing.",
			Bad:  Specimen{Subject: "kube-proxy@v1.12.1/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.10/ipvs"},
			Scenario: "flap", Set: map[string]string{"trafficPolicy": "Cluster", "replicas": "2", "openConnections": "8", "unready": "15s", "watch": "10s"},
			Signature: pattern{occasions: atBegins("flap "), name: "flaps", protocol: record.ProtocolLong,
				classes: []record.Class{record.ReplyTimeout}, fewest: 4, served: record.ProtocolNew}.search, // there are eight connections
		},
		{
			ID: "k8s-117205", Title: "a pod that becomes ready again is deleted and added: its open connections are reset",
			Issue:    upstream + "/issues/117205",
			Affected: "kube-proxy since graceful termination (v1.11.5, v1.12.2, v1.13.0) in mode ipvs; seen in v1.37.1 with --ipvs-min-sync-period=0s", Fixed: notFixed, Modes: []string{ipvs},
			Look: "Lane tcp-long gets resets when the pod becomes ready again. No other lane loses anything.",
			Bad:  Specimen{Subject: "kube-proxy@v1.37.1/ipvs?ipvs-min-sync-period=0s"}, Good: Specimen{Subject: "bundled"},
			// A request is reset if it arrives between the deletion of the pod and its addition. askEvery divides no other time, so that the requests
			// meet each flap at another moment.
			Scenario: "flap", Set: map[string]string{"trafficPolicy": "Cluster", "replicas": "2", "antiAffinity": "off", "flaps": "50", "unready": "150ms",
				"askEvery": "4.013ms", "openConnections": "8", "stayOpen": "1s", "watch": "0s"},
			Nodes: 1, // a flap lasts until the rules of every node are written
			Signature: pattern{occasions: atSteps("flap "), name: "flaps", protocol: record.ProtocolLong, classes: []record.Class{record.Reset, record.Refused},
				fewest: 2, served: record.ProtocolNew}.search, // nearly any moment of the run is at a flap, so one loss tells nothing
		},
		withTimeline(Entry{
			ID: "k8s-106030", Title: "with sessionAffinity: ClientIP a client's new connections go to its pod that is unready",
			Issue: upstream + "/issues/106182", Fix: upstream + "/pull/106030", Affected: "kube-proxy v1.22.0 to v1.22.3 in mode iptables", Fixed: "v1.22.4, v1.23.0 (#106030)",
			Modes: []string{iptables},
			Look:  "A pod answers lane tcp-new while it is unready and another pod is ready. Nothing is lost.",
			Bad:   Specimen{Subject: "kube-proxy@v1.22.3/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.22.17/iptables"},
			Signature: unreadyAnswers,
		}),
		k8s71515(), k8s92019(), modeSwitch(),
	}
}
