package run_test

import (
	"net/http"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/record"
)

// recoveryStates counts the states of the recovery check of a run.
func recoveryStates(t *testing.T, e ended) map[record.RecoveryState]int {
	t.Helper()
	states := map[record.RecoveryState]int{}
	for _, event := range e.events(t, record.KindRecovery) {
		states[event.Body.(record.Recovery).State]++
	}
	return states
}

// Every proxy of a live cluster is checked over its node port after a restart.
func TestLiveRestartChecksRecovery(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	s.awaitProxies(t)
	e := s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet}))
	e.finished(t)
	if states := recoveryStates(t, e); states[record.RecoveryAdded] != 3 || states[record.RecoveryRemoved] != 3 || len(states) != 2 {
		t.Errorf("the check recorded %v, want 3 nodes that followed both changes", states)
	}
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// Proxies that are ready after their restart and follow no change are found, and a node whose proxy did not answer before the
// restart is not blamed.
func TestLiveProxiesDeadAfterRestart(t *testing.T) {
	t.Parallel()
	var s *stand
	s = standing(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if replaytest.Verb(r) == "patch daemonsets.apps" {
				s.deaf.Store(true)
			}
			next.ServeHTTP(w, r)
		})
	})
	s.awaitProxies(t)
	const never = "worker-3"
	replaytest.AddNodes(t, s.server, testfiles.Loopback(t), never) // at an address where nothing listens
	e := s.run(t.Context(), t, "restart", disrupts(map[string]string{"proxy": proxySet, "recoverWithin": "10s"}))
	e.finished(t)
	if states := recoveryStates(t, e); states[record.RecoveryFailed] != 2 || states[record.RecoveryUnchecked] != 1 || len(states) != 2 {
		t.Errorf("the check recorded %v, want 2 nodes that failed and an unchecked one", states)
	}
	nodes := e.result.Report.Recovery.Nodes
	if len(nodes) != 3 {
		t.Errorf("the report has %d nodes, want 3", len(nodes))
	}
	for _, n := range nodes {
		if n.Node == never && (n.State != analysis.RecoveryUnchecked || n.Since != nil) {
			t.Errorf("%+v, want unchecked", n)
		}
		if n.Node != never && (n.State != analysis.RecoveryFailed || n.Since == nil) {
			t.Errorf("%+v, want failed, with the time since when", n)
		}
	}
}

// Nodes over which nothing can be reached from here are not blamed: no proxy is checked, and that is invalid.
func TestLiveNodesThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := standing(t, nil)
	s.deaf.Store(true)
	e := s.run(t.Context(), t, "quiet", nil)
	if states := recoveryStates(t, e); states[record.RecoveryUnchecked] != 3 || len(states) != 1 {
		t.Errorf("the check recorded %v, want 3 unchecked nodes", states)
	}
	if e.result.Report.Verdict != analysis.Invalid {
		t.Errorf("the verdict is %s", e.result.Report.Verdict)
	}
}
