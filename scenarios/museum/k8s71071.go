package museum

import (
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// k8s71071 is kubernetes/kubernetes#71071, fixed by #72361: in mode ipvs the sync and the graceful termination manager share a netlink
// socket without a lock. If one goroutine reads the other's answer, the other waits forever, and the proxy is frozen until a restart.
func k8s71071() Entry {
	return Entry{
		ID:       "k8s-71071",
		Title:    "churn freezes a proxy until it is restarted: new endpoints get no traffic, removed endpoints keep theirs",
		Affected: "kube-proxy v1.11.5, v1.11.6, v1.12.2 to v1.12.4, v1.13.0 and v1.13.1 in mode ipvs",
		Fixed:    "v1.11.7, v1.12.5, v1.13.2 (#72361)",
		Issue:    upstream + "/issues/71071", Fix: upstream + "/pull/72361",
		Modes: []string{ipvs}, Look: "One node or more lose connections after a rollout, until the scenario restarts their proxies. The proxy's log has no line in that time.",
		Bad: Specimen{Subject: "kube-proxy@v1.12.2/ipvs"}, Good: Specimen{Subject: "kube-proxy@v1.12.10/ipvs"},
		Scenario: "churn",
		// The load balancer must keep a node whose proxy is frozen, so that the outage is visible.
		// A freeze that only the last rollout shows is found by the recovery of each node.
		Set:       map[string]string{"trafficPolicy": "Cluster", "checkFall": "100", "watch": "90s", "recoverWithin": "30s"},
		Free:      []string{"for"},
		Signature: proxyFroze,
	}
}

const (
	// A late proxy applies a change within a sync period, and a missed change within the next.
	minFrozen = 2*syncPeriod + 15*time.Second
	// The answer NotSeen needs several times the churn that triggers the bug.
	minChurn = 20
	// A restarted proxy has correct tables within this time.
	maxRecovery = 10 * time.Second
)

// proxyFroze searches for a node that drops connections until its proxy is restarted, while the proxy's log has no line.
func proxyFroze(r *Record) Finding {
	rollouts, churns := r.countChurn()
	switch {
	case len(rollouts) == 0:
		return cannotTell("no rollout ended, so no change showed whether the proxies still follow")
	case !r.detects(minFrozen):
		return cannotTell("the run could not have detected an outage of %s", minFrozen)
	}
	var seen []string
	for _, node := range r.nodes() {
		quiet, restart := r.lastRestart(node)
		for _, o := range r.outagesOn(node) {
			begin, end := fromSeconds(o.From), fromSeconds(o.To)
			long := o.LowerMs >= millis(minFrozen)
			recovered := restart > 0 && begin < restart && end > restart-time.Second && end < restart+maxRecovery
			silent := restart-quiet <= begin+time.Second
			if long && recovered && silent {
				seen = append(seen, fmt.Sprintf("%s dropped connections for %.0f s, from %.1f s on, until its proxy was restarted; the proxy's log had no line for %.0f s",
					node, o.LowerMs/1000, o.From, quiet.Seconds()))
			}
		}
	}
	unresolved := r.unresolved()
	switch {
	case len(seen) > 0:
		return Finding{Seen, seen}
	case unresolved != "":
		return cannotTell("%s, and its proxy was not restarted, so that it may be frozen", unresolved)
	case churns < minChurn:
		return cannotTell("endpoints were churned %d times, which is too little to trigger the bug for certain", churns)
	}
	return Finding{NotSeen, []string{fmt.Sprintf("endpoints were churned %d times, with %d rollouts, and no node dropped connections until its proxy was restarted", churns, len(rollouts))}}
}

// unresolved tells which node lost connections to the end of the run, or whose proxy did not follow the last check, without a restart that
// shows whether the proxy was frozen; empty for none.
func (r *Record) unresolved() string {
	restarted := func(node string) bool { _, restart := r.lastRestart(node); return restart != 0 }
	for _, node := range r.nodes() {
		if restarted(node) {
			continue
		}
		for _, o := range r.outagesOn(node) {
			if fromSeconds(o.To) >= r.end()-endWithin {
				return fmt.Sprintf("%s dropped connections from %.1f s on to the end of the run", node, o.From)
			}
		}
	}
	if r.Report.Recovery == nil {
		return ""
	}
	for _, n := range r.Report.Recovery.Nodes {
		if n.State == analysis.RecoveryFailed && !restarted(n.Node) {
			return "the proxy of " + n.Node + " did not follow the last change"
		}
	}
	return ""
}

// countChurn returns the ends of the scenario's rollouts, and the number of its churn steps.
func (r *Record) countChurn() (rollouts []time.Duration, times int) {
	for _, e := range r.Events {
		switch b := e.Body.(type) {
		case record.Rollout:
			if b.State == record.RolloutEnd {
				rollouts = append(rollouts, e.At)
			}
		case record.Step:
			if b.State == record.StepEnd && strings.HasPrefix(e.Object, "churn ") {
				times++
			}
		}
	}
	return rollouts, times
}

// lastRestart returns when the scenario last restarted the proxy of a node, 0 for never, and how long its log had no line before.
func (r *Record) lastRestart(node string) (quiet, at time.Duration) {
	for _, e := range r.Events {
		if b, is := e.Body.(record.Log); is && e.Node == node && b.Quiet != nil {
			quiet, at = *b.Quiet, e.At
		}
	}
	return quiet, at
}
