package museum

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// k8s139628 is kubernetes/kubernetes#139628, fixed by #139629: the conntrack reconciler of v1.32 skips Services without endpoints. A UDP
// flow to a Service that was scaled to zero is still translated to its exited pod, so that the reject rule does not apply to it.
func k8s139628() Entry {
	return Entry{
		ID:       "k8s-139628",
		Title:    "a UDP flow to a Service that was scaled to zero still goes to its exited pod instead of being rejected",
		Affected: "kube-proxy v1.32 to v1.36 in modes iptables and nftables",
		Fixed:    "v1.37 (#139629)",
		Issue:    upstream + "/issues/139628", Fix: upstream + "/pull/139629",
		Modes: []string{iptables, nftables}, Look: "Between the two steps lane tcp-new is rejected, and lane udp-sticky times out. Both should be rejected.",
		Bad: Specimen{Subject: "kube-proxy@v1.36.1/iptables"}, Good: Specimen{Subject: "kube-proxy@v1.37.1/iptables"},
		Scenario:  "scale",
		Set:       map[string]string{"lanes": "tcp-new,udp-sticky", "trafficPolicy": "Cluster", "away": "30s"},
		Signature: flowToExitedPod,
	}
}

// flowToExitedPod checks whether most datagrams of the flow are refused while the Service has no endpoint, as new connections are. With
// the bug a few are refused too, by the pod's node when the pod exits.
func flowToExitedPod(r *Record) Finding {
	steps := r.steps("scale to ")
	if len(steps) < 2 || steps[0].name != "scale to 0" {
		return cannotTell("the Service was not scaled to zero and back")
	}
	gone, back := steps[0].end+effectWithin, steps[1].begin
	watched := back - gone
	switch {
	case !r.answered(record.ProtocolSticky, "", 0, steps[0].begin):
		return cannotTell("no UDP flow was answered before the Service was scaled to zero")
	case watched < minWithout || !r.detects(minWithout):
		return cannotTell("the Service had no endpoints for %s, which is too short", max(0, watched))
	case len(r.during("tcp-new", gone, back)) == 0 || refusals(r.during("tcp-new", gone, back)...) == 0:
		return cannotTell("new connections were not refused while the Service had no endpoint: the proxy does not refuse")
	case len(r.during("udp-sticky", gone, back)) == 0:
		return cannotTell("the UDP flow was answered while the Service had no endpoint")
	}
	flow := r.during("udp-sticky", gone, back)
	failed := 0
	for _, o := range flow {
		failed += o.Failed()
	}
	if 2*refusals(flow...) < failed {
		return Finding{Seen, []string{fmt.Sprintf("while the Service had no endpoint, the UDP flow over %s was dropped without a rejection (%s), but new connections were refused",
			flow[0].Node, countsOf(flow[0].Classes))}}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("%d of %d dropped datagrams were refused while the Service had no endpoint", refusals(flow...), failed)}}
}

// minWithout is how long a Service must have no endpoints for the run to show what happens to its flows.
const minWithout = 10 * time.Second

// during returns the outages of a protocol's lanes that last from one time to another. They may end up to endWithin earlier.
func (r *Record) during(protocol string, from, to time.Duration) (found []analysis.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if l.Protocol == protocol && fromSeconds(o.From) <= from && fromSeconds(o.To) >= to-endWithin {
				found = append(found, o)
			}
		}
	}
	return found
}

// refusals returns the number of refused and rejected attempts.
func refusals(all ...analysis.OutageReport) (n int) {
	for _, o := range all {
		for _, class := range refusing {
			n += o.Classes[class.String()]
		}
	}
	return n
}
