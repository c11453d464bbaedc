package museum

// modeSwitch is kubernetes/kubernetes#102314, which was closed as a matter of documentation. kube-proxy's platformCleanup treats ipvs and
// iptables as one family and removes nothing when the mode changes between them. The rule that rejects a Service stays.
func modeSwitch() Entry {
	return Entry{
		ID:       "k8s-102314",
		Title:    "a Service without endpoints during the change from iptables to ipvs is rejected from then on, also with endpoints",
		Affected: "kube-proxy v1.14.1 and later at the change from iptables to ipvs without --cleanup; seen up to v1.37.1",
		Fixed:    notFixed + "; run the old proxy with --cleanup, or restart the node, before the change",
		Issue:    upstream + "/issues/102314",
		Modes:    []string{iptables},
		Look:     "The subject is the proxy before the change, and the same version in mode ipvs follows it. Nodes reject connections to the end of the run, although the Service has pods again.",
		Bad:      Specimen{Subject: "kube-proxy@v1.37.1/iptables", Set: map[string]string{"to": "kube-proxy@v1.37.1/ipvs"}},
		Good:     Specimen{Subject: "kube-proxy@v1.37.1/iptables", Set: map[string]string{"to": "kube-proxy@v1.37.1/nftables"}},
		Scenario: "upgrade",
		Set: map[string]string{"empty": "on", "back": "off", "roll": "off", "trafficPolicy": "Cluster", "settle": "75s",
			"lanes": "tcp-new"},
		Signature: rejectedForever,
	}
}

// rejectedForever searches for nodes that reject connections from when there was no pod to the end of the run, although pods exist again.
func rejectedForever(r *Record) Finding {
	changes, scales := r.steps("put "), r.steps("scale to ")
	if len(changes) == 0 || len(scales) < 2 || scales[0].name != "scale to 0" {
		return cannotTell("no proxy was changed while the Deployment was scaled to zero and back")
	}
	gone, back := scales[0], scales[len(scales)-1]
	if changes[0].begin < gone.end || changes[len(changes)-1].end > back.begin {
		return cannotTell("there were pods while the proxies were changed")
	}
	if watched := r.end() - back.end; watched < minLasting {
		return cannotTell("the lanes ran for %s after step %q; the bug needs %s", watched, back.name, minLasting)
	}
	toZero := func(*Record) []step { return []step{gone} }
	// Its first attempts may have reached a terminating pod.
	return pattern{occasions: toZero, name: "scalings to zero", classes: refusing, least: minLasting, toEnd: true}.search(r)
}
