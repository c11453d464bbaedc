package museum

import (
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// k8s71071 is kubernetes/kubernetes#71071, mended by #72361: in ipvs mode the sync and the graceful termination manager, two
// goroutines, talk to the kernel over one netlink socket without a lock. When one reads the other's answer it throws it
// away, and the other waits for ever: the proxy stands still, with its tables as they were, until somebody restarts it.
func k8s71071() Entry {
	return Entry{
		ID:       "k8s-71071",
		Title:    "under churn a proxy stands still for ever: endpoints that come get no traffic, endpoints that go keep theirs",
		Affected: "kube-proxy v1.11.5, v1.11.6, v1.12.2 to v1.12.4, v1.13.0 and v1.13.1 in ipvs mode",
		Fixed:    "v1.11.7, v1.12.5, v1.13.2 (#72361)",
		Scenario: "churn",
		// The balancer goes on sending to a node whose proxy stands still, and the node's pods are not what is lost.
		Set:       map[string]string{"trafficPolicy": "Cluster", "checkFall": "100", "watch": "90s"},
		Signature: stoodStill,
	}
}

const (
	// A proxy that is merely late follows within its sync period, and one that missed a change with the next.
	stillLeast = 2*syncPeriod + 15*time.Second
	// The churn of a run that shall show that a proxy has not the bug: several times what it took to see it
	leastChurned = 20
	// A proxy that was restarted has its tables right within this time.
	curedWithin = 10 * time.Second
)

// stoodStill looks for a node that loses connections from a rollout on until its proxy is restarted, whose log had no
// line meanwhile.
func stoodStill(r *Record) Finding {
	rollouts, churned := r.churned()
	switch floor := r.Report.DetectionFloor.Ms; {
	case len(rollouts) == 0:
		return cannotTell("no rollout came to its end: nobody asked whether the proxies still follow")
	case floor == nil || *floor > millis(stillLeast):
		return cannotTell("an outage of %s would not have been seen", stillLeast)
	}
	var seen []string
	for _, node := range r.nodes() {
		quiet, restart := r.restarted(node)
		for _, o := range r.outagesOn(node) {
			begin, end := fromSeconds(o.From), fromSeconds(o.To)
			still := o.LowerMs >= millis(stillLeast)
			cured := restart > 0 && begin < restart && end > restart-time.Second && end < restart+curedWithin
			silent := restart-quiet <= begin+time.Second
			if still && cured && silent {
				seen = append(seen, fmt.Sprintf("%s lost connections for %.0f s, from %.1f s on, until its proxy was restarted, whose log had no line for %.0f s",
					node, o.LowerMs/1000, o.From, quiet.Seconds()))
			}
		}
	}
	switch {
	case len(seen) > 0:
		return Finding{Seen, seen}
	case churned < leastChurned:
		return cannotTell("endpoints were churned %d times; a proxy that has the bug may stand that", churned)
	}
	return Finding{NotSeen, []string{fmt.Sprintf("after %d times of churn and %d rollouts no node stood still until its proxy was restarted", churned, len(rollouts))}}
}

// churned are the ends of the scenario's rollouts, and how often it churned.
func (r *Record) churned() (rollouts []time.Duration, times int) {
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Rollout:
			if b.State == "end" {
				rollouts = append(rollouts, e.At)
			}
		case record.Step:
			if b.State == "end" && strings.HasPrefix(e.Object, "churn ") {
				times++
			}
		}
	}
	return rollouts, times
}

// restarted is when the scenario restarted the proxy of a node, 0 for never, and for how long its log had had no line.
func (r *Record) restarted(node string) (quiet, at time.Duration) {
	for _, e := range r.Events {
		if b, is := e.Body.(record.Log); is && e.Node == node && b.Quiet != nil {
			quiet, at = *b.Quiet, e.At
		}
	}
	return quiet, at
}
