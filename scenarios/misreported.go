package scenarios

import (
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// wrongNode is a node that the load balancer has although it must not, or lacks although it must have it.
type wrongNode struct {
	since time.Duration
	lacks bool
}

// noteWrong notes since when each node is wrong. Without any node the load balancer may not know the Service, which is no proxy's fault.
func (k *workload) noteWrong(w *World, got, want []string) {
	for _, node := range w.Nodes {
		has, must := slices.Contains(got, node), slices.Contains(want, node)
		was, wrong := k.wrong[node]
		switch {
		case has == must || len(got) == 0:
			delete(k.wrong, node)
		case !wrong || was.lacks != must:
			k.wrong[node] = wrongNode{w.Clock.Now(), must}
		}
	}
}

// judgeMembers returns nil for a wait that failed because proxies gave the load balancer's health checks the wrong answer for longer than
// the checks take and a minute: then the subject has failed, which it records, and the scenario can go on.
func (k *workload) judgeMembers(w *World, waited time.Duration, err error) error {
	if err == nil || waited < w.membershipTime() || CheckTarget.Of(w.Params) != CheckTarget.Default {
		return err
	}
	misreported := false
	for _, node := range w.Nodes {
		wrong, is := k.wrong[node]
		if took := w.Clock.Now() - wrong.since; is && took >= waited-CheckInterval.Of(w.Params) && w.noRecovery(node) == "" {
			misreported = true
			w.recordRecovery(node, record.Recovery{State: record.RecoveryMisreported, Took: took}, wrong.text(node))
		}
	}
	if !misreported {
		return err
	}
	w.run.unrecovered = true
	return nil
}

func (n wrongNode) text(node string) string {
	if n.lacks {
		return node + " fails the load balancer's health checks although it has an endpoint that it may use"
	}
	return node + " passes the load balancer's health checks without an endpoint that it may use"
}
