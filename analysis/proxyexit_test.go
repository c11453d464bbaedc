package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// The load balancer removes nodes whose proxies have exited: the exits are the cause, and the removal is what followed. A proxy
// that has started again is none.
func TestAnExitOutranksTheRemovalThatFollows(t *testing.T) {
	for again, want := range map[bool]string{false: "proxy exited", true: "balancer empty"} {
		o := recordtest.Clean()
		o.Rollouts = 0
		s := o.Lab()
		s.Step("watch", recordtest.ScenarioAt, recordtest.ScenarioAt+time.Second)
		exit := recordtest.ScenarioAt + 2*time.Second
		for _, node := range recordtest.NodeNames {
			s.Event(exit, record.KindProxy, node, "bundled", "bundled exited: exit status 3", "state", "exited")
			if again {
				s.Event(exit+time.Second, record.KindProxy, node, "bundled", "bundled started", "state", "started")
			}
		}
		s.Balance(recordtest.WebAddress, exit+12*time.Second)
		r := reportOf(t, o.Start(s))
		cause := r.Lanes[0].Outages[0].Cause
		if cause.Event != want || !again && (!strings.HasPrefix(cause.Text, "the proxy on node-1 had exited (the last one 12.0 s before: bundled exited: exit status 3)") ||
			!strings.Contains(cause.Text, "the load balancer removed its last node")) {
			t.Errorf("started again %t: %+v, want %s", again, cause, want)
		}
	}
}
