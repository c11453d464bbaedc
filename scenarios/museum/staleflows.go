package museum

import (
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// staleFlows are bugs of connection tracking: a UDP flow goes to a pod that is gone, although new connections are served.
func staleFlows() []Entry {
	const look = "Lane udp-sticky loses datagrams to the end of the run, and lane tcp-new is served on the same path."
	lost := func(occasions func(*Record) []step, name string) func(*Record) Finding {
		return pattern{occasions: occasions, name: name, protocol: record.ProtocolSticky, least: minLasting, toEnd: true,
			served: record.ProtocolNew}.search
	}
	rollout := map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "replicas": "2", "rollouts": "1", "settle": "75s",
		"shutdownDelay": "5s", "gracePeriod": "10s"}
	byNodePort := maps.Clone(rollout)
	byNodePort["target"] = "nodePort"
	return []Entry{
		withTimeline(Entry{
			ID: "k8s-125467", Title: "a UDP flow stays with a pod that was unready before it ended",
			Issue: upstream + "/issues/125467", Fix: upstream + "/pull/127780",
			Affected: "kube-proxy v1.29.0 to v1.29.9, v1.30.0 to v1.30.5, v1.31.0 and v1.31.1 in modes iptables and nftables",
			Fixed:    "v1.29.10, v1.30.6, v1.31.2, v1.32.0 (#127780)", Modes: []string{iptables, nftables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.31.0/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.31.14/iptables"},
			Signature: lost(atFlowsPod(record.PodExited), "ends of the flow's pod"),
		}),
		{
			ID: "k8s-105657", Title: "a UDP flow stays lost after a Service was scaled to zero and back",
			Issue: upstream + "/issues/105657", Fix: upstream + "/pull/106163",
			Affected: "kube-proxy v1.22.0 to v1.22.3 in mode iptables", Fixed: "v1.22.4, v1.23.0 (#106163)", Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.22.3/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.22.17/iptables"},
			Scenario: "scale", Set: map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "settle": "75s"},
			Signature: lost(atSteps("scale to 0"), "steps that scale to zero"),
		},
		{
			ID: "k8s-91236", Title: "a UDP flow to a NodePort stays lost after its Service was deleted and created again",
			Issue: upstream + "/issues/91236", Fix: upstream + "/pull/98305",
			Affected: "kube-proxy up to v1.20.4 in mode iptables", Fixed: "v1.20.5, v1.21.0 (#98305)", Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.19.16/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.20.10/iptables"},
			Scenario: "recreate", Set: map[string]string{"lanes": "tcp-new,udp-sticky", "target": "nodePort", "settle": "75s"},
			Signature: lost(atBegins("create it again"), "creations of the Service"),
		},
		{
			ID: "k8s-59368", Title: "a UDP flow to the load balancer's address stays with a pod that a rollout has ended",
			Issue: upstream + "/issues/59368", Affected: "kube-proxy up to v1.13.10 in mode iptables", Fixed: "v1.13.11, v1.14.0 (#73323)", Fix: upstream + "/pull/73323",
			Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.12.10/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.13.12/iptables"},
			Scenario: "rollout", Set: rollout, Signature: lost(atFlowsPod(record.PodExited), "ends of the flow's pod"),
		},
		{
			ID: "k8s-42473", Title: "a UDP flow to a NodePort stays with a pod that a rollout has ended",
			Issue: upstream + "/issues/42473", Affected: "kube-proxy up to v1.13 in mode iptables", Fixed: "v1.14.0 (#71573)", Fix: upstream + "/pull/71573",
			Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.13.12/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.14.10/iptables"},
			Scenario: "rollout", Set: byNodePort, Signature: lost(atFlowsPod(record.PodExited), "ends of the flow's pod"),
		},
		withTimeline(Entry{
			ID: "k8s-96251", Title: "a UDP flow to the cluster IP of a Service that also has a NodePort stays with a pod that a rollout has ended",
			Issue: upstream + "/pull/96251", Fix: upstream + "/pull/96251",
			Affected: "kube-proxy v1.14 to v1.19 in mode iptables", Fixed: "v1.20.0 (#96251)", Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.19.16/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.20.15/iptables"},
			Signature: lost(atFlowsPod(record.PodExited), "ends of the flow's pod"),
		}),
		{
			ID: "k8s-76664", Title: "in mode ipvs a UDP flow stays with a pod that has ended as long as it sends",
			Issue: upstream + "/issues/76664", Fix: upstream + "/pull/77802",
			Affected: "kube-proxy v1.11.6 to v1.11.10, v1.12.4 to v1.12.9, v1.13.1 to v1.13.7 and v1.14.0 to v1.14.3 in mode ipvs",
			Fixed:    "v1.12.10, v1.13.8, v1.14.4 (#77802; in v1.13.7 and v1.14.3 it compared UDP with udp and had no effect, until #78999)", Modes: []string{ipvs}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.14.0/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.14.10/ipvs"},
			Scenario: "rollout", Set: rollout, Signature: lost(atFlowsPod(record.PodExited), "ends of the flow's pod"),
		},
		{
			ID: "k8s-71514", Title: "in mode ipvs a UDP flow is lost for minutes after its pod was deleted",
			Issue: upstream + "/issues/71514", Fix: upstream + "/pull/71515", Affected: "kube-proxy v1.11.5, v1.12.2, v1.12.3 and v1.13.0 in mode ipvs",
			Fixed: "v1.11.6, v1.12.4, v1.13.1 (#71515), which have k8s-76664 instead; v1.12.10 has neither", Modes: []string{ipvs},
			Look: "Lane udp-sticky loses datagrams for a minute or more after its pod began to terminate, and lane tcp-new is served on the same path.",
			Bad:  Specimen{Subject: "kube-proxy@v1.12.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.10/ipvs"},
			Scenario: "rollout", Set: rollout,
			// The real server is deleted when the pod begins to terminate. With k8s-76664 the flow is lost shutdownDelay later, when the pod ends.
			Signature: pattern{occasions: atFlowsPod(record.PodTerminating), name: "terminations of the flow's pod", protocol: record.ProtocolSticky,
				within: 3 * time.Second, least: 55 * time.Second, served: record.ProtocolNew}.search,
		},
		withTimeline(Entry{
			ID: "k8s-130542", Title: "a UDP flow stays at the old target port of a Service whose target port was changed",
			Issue: upstream + "/pull/130542", Fix: upstream + "/pull/130542", Affected: "kube-proxy v1.32 and v1.33 in modes iptables and nftables", Fixed: "v1.34.0 (#130542)", Modes: []string{iptables, nftables},
			Look: "Lane udp-sticky is answered after the change, and lane udp-fresh is not. Both should get no answer, because no pod listens on the new port.",
			Bad:  Specimen{Subject: "kube-proxy@v1.33.6/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.34.4/iptables"},
			Signature: answering{occasions: atSteps("object patch Service/default/web"), name: "changes of the target port", protocol: record.ProtocolSticky,
				least: 30 * time.Second, silent: record.ProtocolFresh}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-103857", Title: "a UDP flow to the load balancer's address stays lost after its proxy has started without rules",
			Issue: upstream + "/issues/103857", Fix: upstream + "/pull/104009", Affected: "kube-proxy up to v1.20.10, v1.21.4 and v1.22.0 in mode iptables", Fixed: "v1.20.11, v1.21.5, v1.22.1 (#104009)",
			Modes: []string{iptables}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.20.10/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.20.15/iptables"},
			Signature: lost(atSteps("proxy flush"), "flushes"),
		}),
		withTimeline(Entry{
			ID: "k8s-105192", Title: "in mode ipvs a UDP flow to the load balancer's address stays lost after its proxy has started without rules",
			Issue: upstream + "/issues/105192", Fix: upstream + "/pull/105249", Affected: "kube-proxy up to v1.22.2 in mode ipvs; seen in v1.12.10 to v1.22.0", Fixed: "v1.22.3 (#105650), v1.23.0 (#105249)",
			Modes: []string{ipvs}, Look: look,
			Bad: Specimen{Subject: "kube-proxy@v1.22.0/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.22.3/ipvs"},
			Signature: lost(atSteps("proxy flush"), "flushes"),
		}),
		withTimeline(Entry{
			ID: "k8s-129982", Title: "a UDP flow can move to another pod at each change of another Service with the same external IP",
			Issue: upstream + "/issues/129982", Fix: upstream + "/pull/130484", Affected: "kube-proxy v1.32.0 to v1.32.2 in modes iptables and nftables", Fixed: "v1.32.3, v1.33.0 (#130484)",
			Modes: []string{iptables, nftables}, Look: "Another pod begins to answer lane udp-sticky at one or more changes of the other Service's endpoints. Nothing is lost.",
			Bad: Specimen{Subject: "kube-proxy@v1.32.2/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.32.10/iptables"},
			Signature: moves{occasions: atSteps("object apply EndpointSlice/default/other-1"), name: "changes of the other Service"}.search,
		}),
		withTimeline(Entry{
			ID: "k8s-112604", Title: "a UDP flow stays with a pod that ended while a sync failed",
			Issue: upstream + "/issues/112604", Affected: "kube-proxy in modes iptables and nftables; seen up to v1.37.1", Fixed: notFixed,
			Look: look + " Before that tcp-new is lost too, while syncs fail.",
			// In mode ipvs a sync goes on after an error, and deletes the conntrack entries.
			Bad: Specimen{Subject: "kube-proxy@v1.37.1/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/ipvs"},
			Signature: afterFailedSync(lost(atFlowsPod(record.PodExited), "ends of the flow's pod")),
		}),
		k8s122740(), k8s139628(),
	}
}

// atFlowsPod returns the occasions at which a pod that has answered the lane udp-sticky gets a state in the scenario. Other pods do not count:
// two pods of a rollout end a few seconds apart.
func atFlowsPod(state record.PodState) func(r *Record) []step {
	return func(r *Record) (found []step) {
		for _, s := range r.podsThat(state) {
			if slices.ContainsFunc(r.Answers, func(a Answers) bool {
				return a.Protocol == record.ProtocolSticky && a.Pod == s.name && a.First < s.begin
			}) {
				found = append(found, s)
			}
		}
		return found
	}
}

// afterFailedSync is a signature that tells nothing of a run in which no sync failed. While syncs fail, the rules still name a pod that has
// ended, and new connections to it are lost.
func afterFailedSync(signature func(*Record) Finding) func(*Record) Finding {
	const stale = 10 * time.Second
	outdated := pattern{occasions: atExits, name: "ends of pods", protocol: record.ProtocolNew, least: stale}
	return func(r *Record) Finding {
		switch f := outdated.search(r); f.Answer {
		case CannotTell:
			return f
		case NotSeen:
			return cannotTell("no sync failed: new connections were lost for less than %s from the ends of pods on", stale)
		}
		return signature(r)
	}
}
