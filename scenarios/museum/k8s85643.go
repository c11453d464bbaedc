package museum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// A proxy that has the bug reacts to the endpoint's change within this time.
	reaction = 3 * time.Second
	// The record of a change may be this much later than its effect.
	recordLag = 100 * time.Millisecond
)

// lostUntilDetected looks for an outage on the path of a node whose only local pod began to terminate, which begins with
// that and lasts until the health check takes the node out.
func lostUntilDetected(r *Record) Finding {
	low, high, err := detection(r.Report.Run.Parameters)
	if err != nil {
		return cannotTell("%v", err)
	}
	floor := r.Report.DetectionFloor.Ms
	if floor == nil || *floor > millis(low) {
		return cannotTell("an outage of %s would not have been seen", low)
	}
	occasions := r.departures()
	if len(occasions) == 0 {
		return cannotTell("no node lost its only local pod while the load balancer still sent to it")
	}
	var seen []string
	for _, d := range occasions {
		for _, o := range r.outagesOn(d.node) {
			if begins := fromSeconds(o.From); begins < d.at-recordLag || begins > d.at+reaction {
				continue
			}
			if o.UpperMs >= millis(low) && o.LowerMs <= millis(high) {
				seen = append(seen, fmt.Sprintf("%s dropped for %.1f to %.1f s from %.1f s on, %.0f ms after its only local pod %s began to terminate",
					d.node, o.LowerMs/1000, o.UpperMs/1000, o.From, 1000*o.From-millis(d.at), d.pod))
			}
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("nodes that lost their only local pod while the load balancer still sent to them: %d; "+
		"with none of them began an outage of %s to %s", len(occasions), low, high)}}
}

// detection is how long the load balancer may take to find out: `fall` checks in a row must fail, of which the first comes
// within one interval; a check that gets no answer takes one more.
func detection(params map[string]string) (low, high time.Duration, err error) {
	interval, err := time.ParseDuration(params["checkInterval"])
	if err != nil {
		return 0, 0, fmt.Errorf("the run does not say its checkInterval: %w", err)
	}
	fall, err := strconv.Atoi(params["checkFall"])
	if err != nil {
		return 0, 0, fmt.Errorf("the run does not say its checkFall: %w", err)
	}
	const slack = 500 * time.Millisecond
	return max(0, time.Duration(fall-1)*interval-slack), time.Duration(fall+1)*interval + slack, nil
}

// departure is a pod that began to terminate as the only ready one of its Service on a node to which the load balancer
// still sent.
type departure struct {
	at        time.Duration
	node, pod string
}

// departures are those of the Services that the measured lanes go to.
func (r *Record) departures() []departure {
	measured := map[string]bool{}
	service := map[string]string{} // by pod
	for _, e := range r.Events {
		switch {
		case e.Kind == reports.EventLane && e.Attrs["control"] != "true":
			measured[bare(e.Attrs["service"])] = true
		case e.Kind == reports.EventEndpoint && e.Attrs["pod"] != "":
			service[e.Attrs["pod"]] = bare(e.Attrs["service"])
		}
	}
	type local struct{ service, node string }
	ready := map[local][]string{}          // pods
	balanced := map[string]string{}        // nodes by service, with commas
	forget := func(at local, pod string) { // it is ready no more
		ready[at] = slices.DeleteFunc(ready[at], func(p string) bool { return p == pod })
	}
	var found []departure
	for _, e := range r.Events {
		pod := e.Attrs["pod"]
		at := local{service[pod], e.Node}
		switch {
		case e.Kind == reports.EventBalancer:
			balanced[bare(e.Attrs["service"])] = e.Attrs["nodes"]
		case e.Kind != reports.EventPod:
		case e.Attrs["state"] == "ready":
			forget(at, pod)
			ready[at] = append(ready[at], pod)
		case e.Attrs["state"] == "terminating":
			only := slices.Equal(ready[at], []string{pod})
			if only && measured[at.service] && slices.Contains(strings.Split(balanced[at.service], ","), e.Node) {
				found = append(found, departure{e.At, e.Node, pod})
			}
			forget(at, pod)
		case e.Attrs["state"] == "unready", e.Attrs["state"] == "exited", e.Attrs["state"] == "removed":
			forget(at, pod)
		}
	}
	return found
}

// outagesOn are those of the measured lanes on the path over a node.
func (r *Record) outagesOn(node string) (found []reports.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.Node == node {
				found = append(found, o)
			}
		}
	}
	return found
}

// bare is the name of a Service without its namespace.
func bare(service string) string { return service[strings.LastIndex(service, "/")+1:] }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
