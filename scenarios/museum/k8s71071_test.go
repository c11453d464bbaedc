package museum

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// stillAt is when the pods of a rollout have changed in a made-up run, and restartAt when the proxy of node-1 is restarted.
const (
	stillAt   = 40 * time.Second
	restartAt = 170 * time.Second
)

// churned is a run in which endpoints are churned, pods are rolled, and the proxy of node-1 is restarted, whose log has had
// no line for a time.
func churned(times int, quiet time.Duration, losses ...loss) *story {
	s := &story{scenario: "churn", losses: losses, params: map[string]string{}, end: ms(200_000)}
	maps.Copy(s.params, k8s71071().Set)
	s.balance(ms(600), "web", webAddress, "node-1", "node-2")
	for i := range times {
		s.event(scenarioAt+ms(i), record.KindStep, "", fmt.Sprintf("churn %d", i+1), "state", "end")
	}
	s.event(stillAt, record.KindRollout, "", "web", "state", "end", "generation", "1")
	s.event(restartAt, record.KindLog, "node-1", "proxy", "program", "proxy", "quietNs", strconv.FormatInt(int64(quiet), 10))
	return s
}

func TestK8s71071(t *testing.T) {
	lost := func(node string, from, to time.Duration) loss { return loss{node, from, to, record.ConnectTimeout} }
	const quiet = restartAt - stillAt + 20*time.Second
	for name, c := range map[string]struct {
		story *story
		want  Answer
		say   string
	}{
		"the bug":                   {churned(40, quiet, lost("node-1", stillAt, restartAt+ms(500))), Seen, "node-1 lost connections for 130 s"},
		"the bug at once":           {churned(1, quiet, lost("node-1", stillAt, restartAt+ms(500))), Seen, "whose log had no line for 150 s"},
		"nothing lost":              {churned(40, quiet), NotSeen, "after 40 times of churn and 1 rollouts"},
		"lost until the next sync":  {churned(40, quiet, lost("node-1", stillAt, stillAt+ms(30_000))), NotSeen, ""},
		"not cured by the restart":  {churned(40, quiet, lost("node-1", stillAt, ms(199_000))), NotSeen, ""},
		"cured long before":         {churned(40, quiet, lost("node-1", stillAt, restartAt-ms(20_000))), NotSeen, ""},
		"lost by the restart":       {churned(40, quiet, lost("node-1", restartAt+ms(100), restartAt+ms(2000))), NotSeen, ""},
		"another node":              {churned(40, quiet, lost("node-2", stillAt, restartAt+ms(500))), NotSeen, ""},
		"the log went on":           {churned(40, ms(40_000), lost("node-1", stillAt, restartAt+ms(500))), NotSeen, ""},
		"hardly any churn":          {churned(5, quiet), CannotTell, "endpoints were churned 5 times"},
		"no rollout":                {without(churned(40, quiet), record.KindRollout), CannotTell, "no rollout"},
		"another traffic policy":    {with(churned(40, quiet), "trafficPolicy", "Local"), CannotTell, "needs trafficPolicy=Cluster"},
		"a balancer that gives up":  {with(churned(40, quiet), "checkFall", "3"), CannotTell, "needs checkFall=100"},
		"another scenario":          {as(churned(40, quiet), "soak"), CannotTell, "needs churn"},
		"the detector not proved":   {unproved(churned(40, quiet)), CannotTell, "invalid"},
		"no proxy was restarted":    {without(churned(40, quiet, lost("node-1", stillAt, ms(160_000))), record.KindLog), NotSeen, ""},
		"no log and it never ended": {without(churned(40, quiet, lost("node-1", stillAt, ms(199_000))), record.KindLog), NotSeen, ""},
	} {
		f := k8s71071().Judge(c.story.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.say) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.say)
		}
	}
}

// without is the story without the events of a kind.
func without(s *story, kind record.Kind) *story {
	s.events = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == kind })
	return s
}
