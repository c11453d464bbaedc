package museum

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// k8s85643 is kubernetes/kubernetes#85643: behind externalTrafficPolicy: Local a node drops new connections from the moment
// its only pod begins to terminate until the load balancer's health check has found out, although the pod still serves.
// KEP-1669 cured it: v1.26 falls back to terminating endpoints that serve.
func k8s85643() Entry {
	return Entry{
		ID:       "k8s-85643",
		Title:    "a rolling update behind externalTrafficPolicy: Local drops until the load balancer's health check fails",
		Affected: "kube-proxy up to v1.25",
		Fixed:    "v1.26 (KEP-1669)",
		Scenario: "rollout",
		// The backend serves for longer than the health check takes, so that the proxy alone is to blame.
		Set: map[string]string{"trafficPolicy": "Local", "replicas": "1", "antiAffinity": "on", "shutdownDelay": "30s",
			"gracePeriod": "60s", "preStop": "0s"},
		Signature: lostUntilDetected,
	}
}

const (
	// The outage's end and the balancer's change may be recorded this far apart, or ten gaps between two attempts.
	endSlack = time.Second
	// A proxy that has the bug reacts to the endpoint's change within this time.
	reaction = 3 * time.Second
	// The record of a change may be this much later than its effect.
	recordLag = 100 * time.Millisecond
)

// lostUntilDetected looks for an outage on the path of a node whose only local pod began to terminate, which begins with
// that, lasts at least as long as the health check must take, and ends when the load balancer takes the node out.
func lostUntilDetected(r *Record) Finding {
	least, err := detection(r.Report.Run.Parameters)
	if err != nil {
		return cannotTell("%v", err)
	}
	floor := r.Report.DetectionFloor.Ms
	if floor == nil || *floor > millis(least) {
		return cannotTell("an outage of %s would not have been seen", least)
	}
	occasions := r.departures()
	if len(occasions) == 0 {
		return cannotTell("no node lost its only local pod while the load balancer still sent to it")
	}
	slack := endSlack
	for _, l := range r.Report.Lanes {
		slack = max(slack, fromSeconds(10/l.Rate))
	}
	var seen []string
	for _, d := range occasions {
		for _, o := range r.outagesOn(d.node) {
			if d.explains(o, least, slack) {
				seen = append(seen, fmt.Sprintf("%s dropped for %.1f to %.1f s from %.1f s on, %.0f ms after its only local pod %s began to terminate, "+
					"until the load balancer took it out", d.node, o.LowerMs/1000, o.UpperMs/1000, o.From, 1000*o.From-millis(d.at), d.pod))
			}
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("nodes that lost their only local pod while the load balancer still sent to them: %d; "+
		"with none of them began an outage of %s or more that lasted until the load balancer took the node out", len(occasions), least)}}
}

// detection is how long the load balancer takes at least to find out: `fall` checks in a row must fail, and the first may
// come at once. How long it takes at most depends on what a check meets: one that gets no answer waits for it.
func detection(params map[string]string) (least time.Duration, err error) {
	interval, err := time.ParseDuration(params["checkInterval"])
	if err != nil {
		return 0, fmt.Errorf("the run does not say its checkInterval: %w", err)
	}
	fall, err := strconv.Atoi(params["checkFall"])
	if err != nil {
		return 0, fmt.Errorf("the run does not say its checkFall: %w", err)
	}
	const slack = 500 * time.Millisecond
	return max(0, time.Duration(fall-1)*interval-slack), nil
}

// departure is a pod that began to terminate as the only ready one of its Service on a node to which the load balancer
// still sent.
type departure struct {
	at            time.Duration
	left          time.Duration // when the balancer took the node out; 0 when it did not
	node, service string
	pod           string
}

// explains reports whether an outage is what the bug makes of the departure.
func (d departure) explains(o reports.OutageReport, least, slack time.Duration) bool {
	begin, end := fromSeconds(o.From), fromSeconds(o.To)
	return o.Node == d.node && begin >= d.at-recordLag && begin <= d.at+reaction && o.UpperMs >= millis(least) &&
		d.left > 0 && end >= d.left-slack // no attempt goes that way later
}

// departures are those of the Services that the measured lanes go to.
func (r *Record) departures() []departure {
	measured := map[string]bool{}
	service := map[string]string{} // by pod
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Lane:
			if !b.Control {
				measured[bare(b.Service)] = true
			}
		case record.Endpoint:
			if b.Pod != "" {
				service[b.Pod] = bare(b.Service)
			}
		}
	}
	type local struct{ service, node string }
	ready := map[local][]string{}          // pods
	balanced := map[string][]string{}      // nodes by service
	forget := func(at local, pod string) { // it is ready no more
		ready[at] = slices.DeleteFunc(ready[at], func(p string) bool { return p == pod })
	}
	var found []departure
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Membership:
			found = leave(found, e.At, b)
			balanced[bare(b.Service)] = b.Nodes
		case record.Pod:
			at := local{service[b.Pod], e.Node}
			switch b.State {
			case "ready":
				forget(at, b.Pod)
				ready[at] = append(ready[at], b.Pod)
			case "terminating":
				only := slices.Equal(ready[at], []string{b.Pod})
				if only && measured[at.service] && slices.Contains(balanced[at.service], e.Node) {
					found = append(found, departure{at: e.At, node: e.Node, service: at.service, pod: b.Pod})
				}
				forget(at, b.Pod)
			case "unready", "exited", "removed":
				forget(at, b.Pod)
			}
		}
	}
	return found
}

// leave notes with which departures a change of the balancer's table takes their node out.
func leave(all []departure, at time.Duration, change record.Membership) []departure {
	for i, d := range all {
		if d.left == 0 && d.service == bare(change.Service) && !slices.Contains(change.Nodes, d.node) {
			all[i].left = at
		}
	}
	return all
}
