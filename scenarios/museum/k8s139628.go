package museum

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// k8s139628 is kubernetes/kubernetes#139628, mended by #139629: the reconciler of conntrack that came with v1.32 passes over Services
// without endpoints. A flow of UDP to one that was scaled to zero is still translated to the pod that is gone, past the rule that
// would refuse it, for as long as the client sends or until there is an endpoint again.
func k8s139628() Entry {
	return Entry{
		ID:        "k8s-139628",
		Title:     "a flow of UDP to a Service that was scaled to zero goes on to a pod that is gone, instead of being refused",
		Affected:  "kube-proxy v1.32 to v1.36 in iptables and nftables mode",
		Fixed:     "v1.37 (#139629)",
		Scenario:  "scale",
		Set:       map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "away": "30s"},
		Signature: flowGoesToGonePod,
	}
}

// flowGoesToGonePod looks at the flow of datagrams while the Service has no endpoint: whether most are refused, as new connections are.
// A few are even so: by the node of the pod in the moment of its end.
func flowGoesToGonePod(r *Record) Finding {
	steps := r.steps("scale to ")
	if len(steps) < 2 || steps[0].name != "scale to 0" {
		return cannotTell("the Service was not scaled to zero and back")
	}
	gone, back := steps[0].end+effectWithin, steps[1].begin
	watched := back - gone
	switch floor := r.Report.DetectionFloor.Ms; {
	case r.Flow.First == 0 || r.Flow.First > steps[0].begin:
		return cannotTell("no flow of datagrams was answered before the Service was scaled to zero")
	case watched < leastWithout || floor == nil || *floor > millis(leastWithout):
		return cannotTell("the Service was without endpoints for %s, which is too short", max(0, watched))
	case len(r.during("tcp-new", gone, back)) == 0 || refusals(r.during("tcp-new", gone, back)...) == 0:
		return cannotTell("new connections were not refused while the Service had no endpoint: the proxy does not refuse")
	case len(r.during("udp-sticky", gone, back)) == 0:
		return cannotTell("the flow of datagrams was answered while the Service had no endpoint")
	}
	flow := r.during("udp-sticky", gone, back)
	failed := 0
	for _, o := range flow {
		failed += o.Failed()
	}
	if 2*refusals(flow...) < failed {
		return Finding{Seen, []string{fmt.Sprintf("while the Service had no endpoint, the flow of datagrams over %s was lost and not refused (%s), as new connections were",
			flow[0].Node, classesOf(flow[0]))}}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("%d of %d lost datagrams were refused while the Service had no endpoint", refusals(flow...), failed)}}
}

// leastWithout is how long a Service must be without endpoints to see what becomes of its flows.
const leastWithout = 10 * time.Second

// during are the outages of the lanes of a protocol that last from one time to another, but for endWithin.
func (r *Record) during(protocol string, from, to time.Duration) (found []reports.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if l.Protocol == protocol && fromSeconds(o.From) <= from && fromSeconds(o.To) >= to-endWithin {
				found = append(found, o)
			}
		}
	}
	return found
}

// refusals counts the attempts that were refused in any way.
func refusals(all ...reports.OutageReport) (n int) {
	for _, o := range all {
		n += o.Classes[record.Rejected.String()] + o.Classes[record.Refused.String()]
	}
	return n
}
