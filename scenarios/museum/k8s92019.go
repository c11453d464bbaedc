package museum

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
)

// k8s92019 is kubernetes/kubernetes#92019 (and #108319), mended by #111635: in ipvs mode an endpoint that becomes unready keeps its
// connections at weight 0. A proxy that is started then, and finds the endpoint ready again, takes the real server for one that is
// as it should be, and leaves its weight at 0 for ever.
func k8s92019() Entry {
	return Entry{
		ID:       "k8s-92019",
		Title:    "an endpoint that is ready again when its proxy starts keeps weight 0: the node refuses connections for ever",
		Affected: "kube-proxy v1.14 to v1.25 in ipvs mode",
		Fixed:    "v1.26 (#111635)",
		Scenario: "restart",
		// One pod, so that its weight is the difference between served and refused, and its node's balancer goes on.
		Set: map[string]string{"change": "ready", "which": "one", "signal": "TERM", "trafficPolicy": "Cluster", "replicas": "1",
			"settle": "75s", "lanes": "tcp-new"},
		Signature: weightStaysZero,
	}
}

// weightStaysZero looks for the node whose proxy was restarted to refuse connections from when the pod was unready to the end, while
// the others serve again.
func weightStaysZero(r *Record) Finding {
	steps := r.steps("restart the proxy of ")
	if len(steps) == 0 {
		return cannotTell("no proxy was restarted")
	}
	s := steps[0]
	if !r.readyAgain(s) {
		return cannotTell("no pod became unready and, while the proxy was away, ready again")
	}
	if f := r.watchedAfter(s); f != nil {
		return *f
	}
	var seen []string
	for _, o := range r.lasting(s) {
		switch {
		case o.Node != s.node:
			return cannotTell("%s, whose proxy was not restarted, lost connections to the end as well", o.Node)
		case refusals(o) == o.Failed():
			seen = append(seen, never(o))
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("%s served again after its proxy was restarted, within %s", s.node, lastsLeast)}}
}

// readyAgain reports whether a pod became unready in a step and ready again in it.
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
