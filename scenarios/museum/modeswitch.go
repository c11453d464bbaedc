package museum

import "fmt"

// modeSwitch has no issue: it was read in kube-proxy's source, whose platformCleanup takes ipvs and iptables for one family, and
// removes nothing of the other at the change from one to the other. The rule with which the iptables mode refuses a Service that has
// no endpoint stands in a chain of its own (KUBE-EXTERNAL-SERVICES), which the ipvs mode neither uses nor looks at.
func modeSwitch() Entry {
	return Entry{
		ID:       "ipvs-mode-switch",
		Title:    "a Service without endpoints while its proxies change from iptables to ipvs is refused for ever, with endpoints too",
		Affected: "kube-proxy at the change from iptables to ipvs without --cleanup; seen up to v1.37.1",
		Fixed:    "not; the old proxy's --cleanup helps",
		Scenario: "upgrade",
		Set: map[string]string{"empty": "on", "back": "off", "roll": "off", "trafficPolicy": "Cluster", "settle": "75s",
			"lanes": "tcp-new"},
		Signature: refusedForEver,
	}
}

// refusedForEver looks for nodes that refuse from when there was no pod to the end of the run, long after there are pods again.
func refusedForEver(r *Record) Finding {
	changes, scales := r.steps("put "), r.steps("scale to ")
	if len(changes) == 0 || len(scales) < 2 || scales[0].name != "scale to 0" {
		return cannotTell("no proxy was changed while the Deployment was scaled to zero and back")
	}
	gone, back := scales[0], scales[len(scales)-1]
	if changes[0].begin < gone.end || changes[len(changes)-1].end > back.begin {
		return cannotTell("there were pods while the proxies were changed")
	}
	if f := r.watchedAfter(back); f != nil {
		return *f
	}
	var seen []string
	for _, o := range r.lasting(gone) {
		if 10*refusals(o) >= 9*o.Failed() { // the first may have met a pod that was just going
			seen = append(seen, never(o))
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("no node refused for %s after there were pods again, with %d proxies changed meanwhile", lastsLeast, len(changes))}}
}
