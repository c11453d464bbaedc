package museum

import (
	"fmt"

	"github.com/hitless/hitless/record"
)

// k8s122740 is kubernetes/kubernetes#122740 (and #126130): a starting proxy treats all UDP endpoints as new and deletes the conntrack
// entries of all UDP Services. The next packet of each flow can go to another pod, although the flow's pod is ready.
func k8s122740() Entry {
	return Entry{
		ID:       "k8s-122740",
		Title:    "a proxy restart moves UDP flows to other pods, although their own pods are ready",
		Affected: "kube-proxy up to v1.31 in mode iptables",
		Fixed:    "v1.32.0 (#127318)",
		Issue:    upstream + "/issues/122740",
		Fix:      upstream + "/pull/127318",
		Modes:    []string{iptables}, Look: "Another pod begins to answer lane udp-sticky when the proxy of the node that the flow goes over restarts. Nothing is lost.",
		Bad: Specimen{Subject: "kube-proxy@v1.26.0/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/iptables"},
		Scenario: "restart",
		// With 30 pods, a flow that gets a new pod gets the same pod again in one of 30 cases. A second restart would follow within ten seconds.
		Set: map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "replicas": "30", "antiAffinity": "off",
			"which": "one", "change": "off", "signal": "TERM"},
		Signature: moves{occasions: atSteps("restart the proxy of "), name: "restarts of a proxy"}.search,
	}
}

// moves is a bug that gives a UDP flow to another pod although its own is ready. Its method search is a Signature.
type moves struct {
	occasions func(r *Record) []step // at which the flow can move
	name      string                 // what the occasions are, in the plural
}

// search looks for a flow whose pod changes at an occasion.
func (m moves) search(r *Record) Finding {
	steps := m.occasions(r)
	if len(steps) == 0 {
		return cannotTell("the run has no %s", m.name)
	}
	var seen []string
	for _, s := range steps {
		for _, move := range r.Moves {
			if move.At >= s.begin && move.At <= s.end+effectWithin && move.Stayed {
				seen = append(seen, fmt.Sprintf("the UDP flow moved from %s to %s at %.1f s, at step %q, although %s was ready",
					move.From, move.To, move.At.Seconds(), s.name, move.From))
			}
		}
	}
	switch {
	case len(seen) > 0:
		return Finding{Seen, seen}
	case !r.answered(record.ProtocolSticky, "", 0, steps[0].begin):
		return cannotTell("no UDP flow was answered before the %s", m.name)
	case !r.answered(record.ProtocolSticky, "", steps[len(steps)-1].end, r.phase("end")):
		return cannotTell("no UDP flow was answered after the %s", m.name)
	}
	return Finding{NotSeen, []string{"the UDP flow kept its pod at all " + m.name}}
}
