package museum

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// k8s71515 is the deterministic half of kubernetes/kubernetes#71071, mended by #71515: an endpoint that became unready with
// connections open never leaves the list of the graceful termination manager, whose timer deletes it from IPVS each
// minute, although it is ready again; the next sync puts it back.
func k8s71515() Entry {
	return Entry{
		ID:       "k8s-71515",
		Title:    "after a readiness flap with connections open, a live endpoint is deleted from IPVS each minute",
		Affected: "kube-proxy v1.11.5, v1.12.2, v1.12.3 and v1.13.0 in ipvs mode",
		Fixed:    "v1.11.6, v1.12.4, v1.13.1",
		Scenario: "flap",
		// Each of two pods flaps while the other one serves: whoever refuses connections has no excuse.
		Set:       map[string]string{"trafficPolicy": "Cluster", "replicas": "2"},
		Timelines: true,
		Signature: refusedEachMinute,
	}
}

const (
	terminationTick = time.Minute      // rsCheckDeleteInterval in graceful_termination.go
	syncPeriod      = 30 * time.Second // --ipvs-sync-period
	tickSlack       = time.Second
)

// refusedEachMinute looks for a node that refuses connections at least three times, a minute apart, each time for no longer
// than a sync period, while nothing happens any more.
func refusedEachMinute(r *Record) Finding {
	flaps, watch := r.flaps()
	switch floor := r.Report.DetectionFloor.Ms; {
	case len(flaps) < 2:
		return cannotTell("%d pods became unready and ready again; each of the two must", len(flaps))
	case slices.ContainsFunc(flaps, func(pod string) bool { return !r.Open[pod] }):
		return cannotTell("no connection was open to one of the pods that became unready (%v)", flaps)
	case floor == nil || *floor > millis(tickSlack):
		return cannotTell("an outage of %s would not have been seen", tickSlack)
	}
	least := 3*terminationTick + syncPeriod/3
	if watched := fromSeconds(r.Report.Run.Duration) - watch; watch == 0 || watched < least {
		return cannotTell("new connections were watched for %s after the others were closed; the bug needs %s", max(0, watched), least)
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

// flaps are the pods that became unready and ready again in the scenario, and when the watching began, 0 for never.
func (r *Record) flaps() (pods []string, watch time.Duration) {
	unready, scenario := map[string]bool{}, false
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Phase:
			scenario = scenario || e.Object == "scenario"
		case record.Step:
			if e.Object == "watch" && b.State == "begin" {
				watch = e.At
			}
		case record.Pod:
			switch {
			case !scenario:
			case b.State == "unready":
				unready[b.Pod] = true
			case b.State == "ready" && unready[b.Pod] && !slices.Contains(pods, b.Pod):
				pods = append(pods, b.Pod)
			}
		}
	}
	return pods, watch
}

// nodes are those that measured lanes went over.
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

// ticks are the starts, in seconds, of the longest row of outages on a node that follow each other by a minute: each with
// refusals only, and no longer than a sync period.
func (r *Record) ticks(node string, after time.Duration) (longest []float64) {
	var row []float64
	for _, o := range r.outagesOn(node) {
		refusals := o.Classes[record.Rejected.String()] + o.Classes[record.Refused.String()]
		if fromSeconds(o.From) < after || refusals != o.Failed() || o.LowerMs > millis(syncPeriod+tickSlack) {
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
