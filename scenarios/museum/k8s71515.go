package museum

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// k8s71515 is the deterministic part of kubernetes/kubernetes#71071, fixed by #71515: an endpoint that became unready with open
// connections stays in the graceful termination list. A timer deletes it from IPVS each minute, and the next sync adds it again.
func k8s71515() Entry {
	return Entry{
		ID:       "k8s-71515",
		Title:    "after a readiness flap with open connections, a ready endpoint is deleted from IPVS each minute",
		Affected: "kube-proxy v1.11.5, v1.12.2, v1.12.3 and v1.13.0 in mode ipvs",
		Fixed:    "v1.11.6, v1.12.4, v1.13.1",
		Issue:    upstream + "/pull/71515", Fix: upstream + "/pull/71515",
		Modes: []string{ipvs}, Look: "A node refuses connections each minute, for at most 30 s, although a pod is ready.",
		Bad: Specimen{Subject: "kube-proxy@v1.12.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.4/ipvs"},
		Scenario: "flap",
		// One of two pods is always ready, so that a correct proxy never rejects connections.
		Set:       map[string]string{"trafficPolicy": "Cluster", "replicas": "2"},
		Free:      []string{"antiAffinity", "readinessPeriod", "flaps", "openConnections", "watch"},
		Timelines: true,
		Signature: refusedEachMinute,
	}
}

const (
	terminationTick = time.Minute      // rsCheckDeleteInterval in graceful_termination.go
	syncPeriod      = 30 * time.Second // --ipvs-sync-period
	tickSlack       = time.Second
)

// refusedEachMinute searches for a node that refuses connections at least three times, a minute apart, each time for at most a sync
// period, after the last step of the scenario.
func refusedEachMinute(r *Record) Finding {
	flaps, watch := r.flaps()
	switch {
	case len(flaps) < 2:
		return cannotTell("%d pods became unready and ready again, want at least 2", len(flaps))
	case slices.ContainsFunc(flaps, func(pod string) bool { return !r.open(pod) }):
		return cannotTell("no connection was open to one of the pods that became unready (%v)", flaps)
	case !r.detects(tickSlack):
		return cannotTell("the run could not have detected an outage of %s", tickSlack)
	}
	least := 3*terminationTick + syncPeriod/3
	if watched := fromSeconds(r.Report.Run.Duration) - watch; watch == 0 || watched < least {
		return cannotTell("the run watched for %s after the open connections were closed; the bug needs %s", max(0, watched), least)
	}
	var seen []string
	for _, node := range r.nodes() {
		if starts := r.ticks(node, watch); len(starts) >= 3 {
			seen = append(seen, fmt.Sprintf("%s refused connections %d times, a minute apart, from %.1f s on", node, len(starts), starts[0]))
		}
	}
	if len(seen) > 0 {
		return Finding{Seen, seen}
	}
	return Finding{NotSeen, []string{"no node refused connections three times a minute apart"}}
}

// flaps returns the pods that became unready and ready again in the scenario, and the begin of step watch, 0 for none.
func (r *Record) flaps() (pods []string, watch time.Duration) {
	unready, scenario := map[string]bool{}, false
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Phase:
			scenario = scenario || e.Object == "scenario"
		case record.Step:
			if e.Object == "watch" && b.State == record.StepBegin {
				watch = e.At
			}
		case record.Pod:
			switch {
			case !scenario:
			case b.State == record.PodUnready:
				unready[b.Pod] = true
			case b.State == record.PodReady && unready[b.Pod] && !slices.Contains(pods, b.Pod):
				pods = append(pods, b.Pod)
			}
		}
	}
	return pods, watch
}

// nodes returns the nodes on the paths of the measured lanes.
func (r *Record) nodes() (nodes []string) {
	for _, l := range r.Report.Lanes {
		for _, p := range l.Paths {
			if !slices.Contains(nodes, p.Node) {
				nodes = append(nodes, p.Node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// ticks returns the starts, in seconds, of the longest series of outages on a node that are a minute apart. Each of them has refused
// attempts only and lasts at most a sync period.
func (r *Record) ticks(node string, after time.Duration) (longest []float64) {
	var row []float64
	for _, o := range r.outagesOn(node) {
		if fromSeconds(o.From) < after || refusals(o) != o.Failed() || o.LowerMs > millis(syncPeriod+tickSlack) {
			continue
		}
		if n := len(row); n > 0 && math.Abs(o.From-row[n-1]-terminationTick.Seconds()) > tickSlack.Seconds() {
			row = nil
		}
		if row = append(row, o.From); len(row) > len(longest) {
			longest = slices.Clone(row)
		}
	}
	return longest
}
