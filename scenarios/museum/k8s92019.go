package museum

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
)

// k8s92019 is kubernetes/kubernetes#92019 (and #108319), fixed by #111635: in mode ipvs an unready endpoint keeps its connections at
// weight 0. If it is ready again when the proxy starts, the proxy does not compare the weight, and it stays 0.
func k8s92019() Entry {
	return Entry{
		ID:       "k8s-92019",
		Title:    "an endpoint that becomes ready while the proxy does not run keeps weight 0: the node rejects connections from then on",
		Affected: "kube-proxy v1.14 to v1.25 in mode ipvs",
		Fixed:    "v1.26 (#111635)",
		Issue:    upstream + "/issues/92019", Fix: upstream + "/pull/111635",
		Modes: []string{ipvs}, Look: "The node whose proxy was restarted rejects connections to the end of the run. No other node does.",
		Bad: Specimen{Subject: "kube-proxy@v1.25.3/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.26.0/ipvs"},
		Scenario: "restart",
		// With one pod, weight 0 leaves no backend, so that the node rejects connections.
		Set: map[string]string{"change": "ready", "which": "one", "signal": "TERM", "trafficPolicy": "Cluster", "replicas": "1",
			"settle": "75s", "lanes": "tcp-new"},
		Signature: weightStaysZero,
	}
}

// weightStaysZero searches for a node whose proxy was restarted and that rejects connections from when the pod was unready to the end
// of the run, while the other nodes serve again.
func weightStaysZero(r *Record) Finding {
	steps := r.steps("restart the proxy of ")
	if len(steps) == 0 {
		return cannotTell("no proxy was restarted")
	}
	s := steps[0]
	if !r.readyAgain(s) {
		return cannotTell("no pod became unready, and ready again while the proxy did not run")
	}
	if f := r.checkObserved(s); f != nil {
		return *f
	}
	var seen []string
	for _, o := range r.lastingOutages(s) {
		switch {
		case o.Node != s.node:
			return cannotTell("%s, whose proxy was not restarted, also dropped connections to the end of the run", o.Node)
		case refusals(o) == o.Failed():
			seen = append(seen, describeLasting(o))
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("%s served again after its proxy was restarted, within %s", s.node, minLasting)}}
}

// readyAgain reports whether a pod became unready and ready again during a step.
func (r *Record) readyAgain(s step) bool {
	var unready time.Duration
	for _, e := range r.Events {
		switch pod, is := e.Body.(record.Pod); {
		case !is || e.At < s.begin || e.At > s.end:
		case pod.State == "unready":
			unready = e.At
		case pod.State == "ready" && unready > 0:
			return true
		}
	}
	return false
}
