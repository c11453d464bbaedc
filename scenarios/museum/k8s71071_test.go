package museum

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// rolledOutAt is the end of a simulated rollout, and restartAt the restart of node-1's proxy.
const (
	rolledOutAt = 40 * time.Second
	restartAt   = 170 * time.Second
)

// churned is a run with churn, a rollout and a restart of node-1's proxy, whose log has no line for a time before.
func churned(times int, quiet time.Duration, losses ...loss) *fakeRun {
	s := &fakeRun{scenario: "churn", losses: losses, params: map[string]string{}, end: ms(200_000)}
	maps.Copy(s.params, k8s71071().Set)
	s.balance(ms(600), "web", webAddress, "node-1", "node-2")
	for i := range times {
		s.event(scenarioAt+ms(i), "", fmt.Sprintf("churn %d", i+1), record.Step{State: record.StepEnd})
	}
	s.event(rolledOutAt, "", "web", record.Rollout{State: record.RolloutEnd, Generation: "1"})
	s.event(restartAt, "node-1", "proxy", record.Log{Program: "proxy", Quiet: &quiet})
	return s
}

func TestK8s71071(t *testing.T) {
	lost := func(node string, from, to time.Duration) loss { return loss{node, from, to, record.ConnectTimeout} }
	const quiet = restartAt - rolledOutAt + 20*time.Second
	for name, c := range map[string]struct {
		run    *fakeRun
		want   Answer
		reason string
	}{
		"the bug":                      {churned(40, quiet, lost("node-1", rolledOutAt, restartAt+ms(500))), Seen, "node-1 dropped connections for 130 s"},
		"the bug early":                {churned(1, quiet, lost("node-1", rolledOutAt, restartAt+ms(500))), Seen, "log had no line for 150 s"},
		"nothing lost":                 {churned(40, quiet), NotSeen, "churned 40 times, with 1 rollouts"},
		"lost until the next sync":     {churned(40, quiet, lost("node-1", rolledOutAt, rolledOutAt+ms(30_000))), NotSeen, ""},
		"not ended by the restart":     {churned(40, quiet, lost("node-1", rolledOutAt, ms(199_000))), NotSeen, ""},
		"ten seconds later":            {churned(40, quiet, lost("node-1", rolledOutAt+ms(10_000), restartAt+ms(10_500))), NotSeen, ""},
		"ended long before":            {churned(40, quiet, lost("node-1", rolledOutAt, restartAt-ms(20_000))), NotSeen, ""},
		"lost by the restart":          {churned(40, quiet, lost("node-1", restartAt+ms(100), restartAt+ms(2000))), NotSeen, ""},
		"another node":                 {churned(40, quiet, lost("node-2", rolledOutAt, restartAt+ms(500))), NotSeen, ""},
		"log lines meanwhile":          {churned(40, ms(40_000), lost("node-1", rolledOutAt, restartAt+ms(500))), NotSeen, ""},
		"too little churn":             {churned(5, quiet), CannotTell, "endpoints were churned 5 times"},
		"no rollout":                   {without(churned(40, quiet), record.KindRollout), CannotTell, "no rollout"},
		"another traffic policy":       {with(churned(40, quiet), "trafficPolicy", "Local"), CannotTell, "needs trafficPolicy=Cluster"},
		"another checkFall":            {with(churned(40, quiet), "checkFall", "3"), CannotTell, "needs checkFall=100"},
		"another scenario":             {as(churned(40, quiet), "soak"), CannotTell, "needs churn"},
		"no proof":                     {unproved(churned(40, quiet)), CannotTell, "invalid"},
		"no proxy was restarted":       {without(churned(40, quiet, lost("node-1", rolledOutAt, ms(160_000))), record.KindLog), NotSeen, ""},
		"no restart and no end":        {without(churned(40, quiet, lost("node-1", rolledOutAt, ms(199_000))), record.KindLog), CannotTell, "was not restarted"},
		"the last change not followed": {unfollowed(churned(40, quiet)), CannotTell, "did not follow the last change"},
	} {
		f := k8s71071().Judge(c.run.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.reason)
		}
	}
}

// without removes the events of a kind.
func without(s *fakeRun, kind record.Kind) *fakeRun {
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == kind })
	return s
}

// unfollowed is a run without a restart in which the proxy of node-1 did not follow the check at the end.
func unfollowed(s *fakeRun) *fakeRun {
	without(s, record.KindLog)
	s.event(s.end-time.Second, "node-1", "recovery", record.Recovery{State: record.RecoveryFailed, Change: record.RecoveryAdded})
	return s
}
