package museum

import (
	"time"

	"github.com/hitless/hitless/record"
)

// k8s92019 is kubernetes/kubernetes#92019 (and #108319), fixed by #111635: in mode ipvs an unready endpoint keeps its connections at
// weight 0. If it is ready again when the proxy starts, the proxy does not compare the weight, and it stays 0.
func k8s92019() Entry {
	return Entry{
		ID:       "k8s-92019",
		Title:    "an endpoint that becomes ready while the proxy does not run keeps weight 0: the node rejects connections from then on",
		Affected: "kube-proxy v1.12.8 to v1.12.10, v1.13.6 to v1.13.12 and v1.14.1 to v1.25 in mode ipvs, since #75283; seen in v1.12.10 and v1.25.3, not in v1.12.2",
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

// staysRejected is the loss over the node whose proxy was restarted, to the end of the run.
var staysRejected = pattern{occasions: atBegins("restart the proxy of "), name: "restarts of a proxy", onNode: true, classes: refusing, least: minLasting, toEnd: true}

// weightStaysZero searches for a node whose proxy was restarted and that rejects connections from when the pod was unready to the end
// of the run, while the other nodes serve again.
func weightStaysZero(r *Record) Finding {
	restarts := r.steps("restart the proxy of ")
	if len(restarts) == 0 {
		return cannotTell("no proxy was restarted")
	}
	s := restarts[0]
	if !r.readyAgain(s) {
		return cannotTell("no pod became unready, and ready again while the proxy did not run")
	}
	if watched := r.end() - s.end; watched < minLasting {
		return cannotTell("the lanes ran for %s after %q; the bug needs %s", watched, s.name, minLasting)
	}
	anywhere := staysRejected
	anywhere.onNode, anywhere.classes = false, nil
	begin := anywhere.occasions(r)[0]
	for _, l := range anywhere.losses(r) {
		if l.node != s.node && anywhere.begins(l, begin) && anywhere.matches(r, l) {
			return cannotTell("%s, whose proxy was not restarted, also dropped connections to the end of the run", l.node)
		}
	}
	return staysRejected.search(r)
}

// readyAgain reports whether a pod became unready and ready again during a step.
func (r *Record) readyAgain(s step) bool {
	var unready time.Duration
	for _, e := range r.Events {
		switch pod, is := e.Body.(record.Pod); {
		case !is || e.At < s.begin || e.At > s.end:
		case pod.State == record.PodUnready:
			unready = e.At
		case pod.State == record.PodReady && unready > 0:
			return true
		}
	}
	return false
}
