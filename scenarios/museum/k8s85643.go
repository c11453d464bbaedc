package museum

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// k8s85643 is kubernetes/kubernetes#85643: with externalTrafficPolicy: Local a node drops new connections from when its only pod begins
// to terminate until its health checks fail, although the pod still serves. v1.26 falls back to serving terminating endpoints (KEP-1669).
func k8s85643() Entry {
	return Entry{
		ID:       "k8s-85643",
		Title:    "a rolling update behind externalTrafficPolicy: Local drops connections until the load balancer's health check fails",
		Affected: "kube-proxy up to v1.25",
		Fixed:    "v1.26 (KEP-1669)",
		Fix:      upstream + "/pull/113363",
		Issue:    upstream + "/issues/85643",
		Look:     "The path over the node whose pod terminates loses connections until the load balancer removes the node.",
		Bad:      Specimen{Subject: "kube-proxy@v1.25.3/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.26.0/iptables"},
		Scenario: "rollout",
		// The pod serves for longer than the health checks take, so that only the proxy can cause the outage.
		Set: map[string]string{"trafficPolicy": "Local", "replicas": "1", "antiAffinity": "on", "shutdownDelay": "30s",
			"gracePeriod": "60s", "preStop": "0s"},
		Free:      []string{"rollouts", "loadBalancer", "checkInterval", "checkFall", "checkRise"},
		Signature: lostUntilDetected,
	}
}

const (
	// The outage's end and the change of the membership may be recorded this far apart, or ten intervals of a lane.
	endSlack = time.Second
	// A proxy with the bug reacts to the endpoint's change within this time.
	reaction = 3 * time.Second
	// The record of a change may be this much later than its effect.
	recordLag = 100 * time.Millisecond
)

// lostUntilDetected searches for an outage on the path of a node whose only local pod began to terminate. It begins then, lasts at least
// as long as the health checks take, and ends when the load balancer removes the node.
func lostUntilDetected(r *Record) Finding {
	least, err := detection(r.Report.Run.Parameters)
	if err != nil {
		return cannotTell("%v", err)
	}
	if !r.detects(least) {
		return cannotTell("the run could not have detected an outage of %s", least)
	}
	departures := r.departures()
	if len(departures) == 0 {
		return cannotTell("no node lost its only local pod while it was in the load balancer's membership")
	}
	slack := endSlack
	for _, l := range r.Report.Lanes {
		slack = max(slack, fromSeconds(10/l.Rate))
	}
	var seen []string
	for _, d := range departures {
		for _, o := range r.outagesOn(d.node) {
			if d.explains(o, least, slack) {
				seen = append(seen, fmt.Sprintf("%s dropped for %.1f to %.1f s from %.1f s on, %.0f ms after its only local pod %s began to terminate, "+
					"until the load balancer removed the node", d.node, o.LowerMs/1000, o.UpperMs/1000, o.From, 1000*o.From-millis(d.at), d.pod))
			}
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("nodes that lost their only local pod while they were in the load balancer's membership: %d; "+
		"none of them had an outage of %s or more until the load balancer removed it", len(departures), least)}}
}

// detection returns the shortest time in which the load balancer removes a node: `fall` checks in a row must fail, and the first can be
// immediate. There is no fixed upper limit, because a check without an answer waits until its timeout.
func detection(params map[string]string) (least time.Duration, err error) {
	interval, err := time.ParseDuration(params["checkInterval"])
	if err != nil {
		return 0, fmt.Errorf("the run's parameter checkInterval: %w", err)
	}
	fall, err := strconv.Atoi(params["checkFall"])
	if err != nil {
		return 0, fmt.Errorf("the run's parameter checkFall: %w", err)
	}
	const slack = 500 * time.Millisecond
	return max(0, time.Duration(fall-1)*interval-slack), nil
}

// departure is the start of the termination of a node's only ready pod, while the node is in the load balancer's membership.
type departure struct {
	at            time.Duration
	removed       time.Duration // when the load balancer removed the node; 0 when it did not
	node, service string
	pod           string
}

// explains reports whether the bug and this departure explain an outage.
func (d departure) explains(o analysis.OutageReport, least, slack time.Duration) bool {
	begin, end := fromSeconds(o.From), fromSeconds(o.To)
	return o.Node == d.node && begin >= d.at-recordLag && begin <= d.at+reaction && o.UpperMs >= millis(least) &&
		d.removed > 0 && end >= d.removed-slack // no later attempt goes over the node
}

// departures returns the departures of the Services of the measured lanes.
func (r *Record) departures() []departure {
	measured := map[string]bool{}
	service := map[string]string{} // by pod
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Lane:
			if !b.Control {
				measured[withoutNamespace(b.Service)] = true
			}
		case record.Endpoint:
			if b.Pod != "" {
				service[b.Pod] = withoutNamespace(b.Service)
			}
		}
	}
	type local struct{ service, node string }
	ready := map[local][]string{}          // pods
	membership := map[string][]string{}    // nodes by service
	forget := func(at local, pod string) { // the pod is not ready any more
		ready[at] = slices.DeleteFunc(ready[at], func(p string) bool { return p == pod })
	}
	var found []departure
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Membership:
			found = markRemoved(found, e.At, b)
			membership[withoutNamespace(b.Service)] = b.Nodes
		case record.Pod:
			at := local{service[b.Pod], e.Node}
			switch b.State {
			case record.PodReady:
				forget(at, b.Pod)
				ready[at] = append(ready[at], b.Pod)
			case record.PodTerminating:
				only := slices.Equal(ready[at], []string{b.Pod})
				if only && measured[at.service] && slices.Contains(membership[at.service], e.Node) {
					found = append(found, departure{at: e.At, node: e.Node, service: at.service, pod: b.Pod})
				}
				forget(at, b.Pod)
			case record.PodUnready, record.PodExited, record.PodRemoved:
				forget(at, b.Pod)
			}
		}
	}
	return found
}

// markRemoved sets removed in the departures whose node a change of the membership removes.
func markRemoved(all []departure, at time.Duration, change record.Membership) []departure {
	for i, d := range all {
		if d.removed == 0 && d.service == withoutNamespace(change.Service) && !slices.Contains(change.Nodes, d.node) {
			all[i].removed = at
		}
	}
	return all
}
