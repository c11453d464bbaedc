package museum

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// rolled is a rollout from node-1 to node-2 behind externalTrafficPolicy: Local, with three health checks, 5 s apart. The old pod begins
// to terminate at 20 s, and the load balancer removes its node 12.3 s later.
func rolled(losses ...loss) *fakeRun {
	s := &fakeRun{scenario: "rollout", losses: losses, params: map[string]string{"checkInterval": "5s", "checkFall": "3"}}
	maps.Copy(s.params, k8s85643().Set)
	s.pod(500*time.Millisecond, "web-1", "node-1", record.PodReady)
	s.balance(600*time.Millisecond, "web", webAddress, "node-1")
	s.pod(19*time.Second, "web-2", "node-2", record.PodReady)
	s.balance(19500*time.Millisecond, "web", webAddress, "node-1", "node-2")
	s.pod(20*time.Second, "web-1", "node-1", record.PodTerminating)
	s.balance(32300*time.Millisecond, "web", webAddress, "node-2")
	s.pod(50*time.Second, "web-1", "node-1", record.PodExited)
	s.pod(50*time.Second, "web-1", "node-1", record.PodRemoved)
	return s
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestK8s85643(t *testing.T) {
	for name, c := range map[string]struct {
		run    *fakeRun
		want   Answer
		reason string
	}{
		"the bug":                     {rolled(loss{"node-1", ms(20050), ms(32300), record.Rejected}), Seen, "node-1 dropped for 12."},
		"the bug, timeouts":           {rolled(loss{"node-1", ms(21500), ms(32300), record.ConnectTimeout}), Seen, "its only local pod web-1"},
		"nothing lost":                {rolled(), NotSeen, "membership: 1"},
		"too short":                   {rolled(loss{"node-1", ms(20050), ms(21050), record.Rejected}), NotSeen, "an outage of 9.5s or more"},
		"on the other node":           {rolled(loss{"node-2", ms(20050), ms(32300), record.Rejected}), NotSeen, ""},
		"before the pod terminates":   {rolled(loss{"node-1", ms(19600), ms(32300), record.Rejected}), NotSeen, ""},
		"begins too late":             {removedAt(rolled(loss{"node-1", ms(23200), ms(48000), record.Rejected}), ms(48000)), NotSeen, ""},
		"ten seconds later":           {removedAt(rolled(loss{"node-1", ms(30050), ms(42300), record.Rejected}), ms(42300)), NotSeen, ""},
		"node never removed":          {keepsNode(rolled(loss{"node-1", ms(20050), ms(60000), record.Rejected})), NotSeen, ""},
		"ends before the removal":     {canaryChanges(rolled(loss{"node-1", ms(20050), ms(30500), record.Rejected})), NotSeen, ""},
		"removed before three checks": {removedAt(rolled(loss{"node-1", ms(20050), ms(23000), record.Rejected}), ms(23000)), NotSeen, ""},
		"the bug, node added again":   {nodeReturns(rolled(loss{"node-1", ms(20050), ms(32300), record.Rejected})), Seen, "until the load balancer removed the node"},
		"slow checks":                 {removedAt(rolled(loss{"node-1", ms(20050), ms(48000), record.ReplyTimeout}), ms(48000)), Seen, "node-1 dropped for 2"},
		"another local pod":           {secondPod(rolled(loss{"node-1", ms(20050), ms(32300), record.Rejected})), CannotTell, "no node lost its only local pod"},
		"node removed before":         {removedBefore(rolled()), CannotTell, "no node lost its only local pod"},
		"another Service's pod":       {otherService(), CannotTell, "no node lost its only local pod"},
		"below the floor":             {with(rolled(), "checkFall", "1"), CannotTell, "could not have detected"},
		"no proof":                    {unproved(rolled()), CannotTell, "invalid"},
		"loss in the baseline":        {rolled(loss{"node-1", ms(6000), ms(6500), record.Rejected}), CannotTell, "the baseline is not clean"},
		"another scenario":            {as(rolled(), "quiet"), CannotTell, "needs rollout"},
		"another parameter":           {with(rolled(), "replicas", "2"), CannotTell, "needs replicas=1"},
	} {
		f := k8s85643().Judge(c.run.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.reason)
		}
	}
}

// keepsNode lets the load balancer never remove the node.
func keepsNode(s *fakeRun) *fakeRun {
	for i, e := range s.events {
		if b, is := e.Body.(record.Membership); is && slices.Equal(b.Nodes, []string{"node-2"}) {
			b.Nodes = []string{"node-1", "node-2"}
			s.events[i].Body = b
		}
	}
	return s
}

// removedAt lets the load balancer remove the old node at another time.
func removedAt(s *fakeRun, at time.Duration) *fakeRun {
	for i, e := range s.events {
		if b, is := e.Body.(record.Membership); is && slices.Equal(b.Nodes, []string{"node-2"}) {
			b.From = new(at)
			s.events[i].At, s.events[i].Body = at, b
		}
	}
	return s
}

// canaryChanges changes the membership of another Service when the outage ends.
func canaryChanges(s *fakeRun) *fakeRun {
	s.balance(ms(30400), "canary", canaryAddress, "node-9")
	return s
}

// nodeReturns lets the load balancer add and remove the node once more.
func nodeReturns(s *fakeRun) *fakeRun {
	s.balance(ms(60000), "web", webAddress, "node-1", "node-2")
	s.balance(ms(70000), "web", webAddress, "node-2")
	return s
}

// secondPod adds a ready pod to the old node.
func secondPod(s *fakeRun) *fakeRun {
	s.pod(ms(18000), "web-3", "node-1", record.PodReady)
	return s
}

// removedBefore lets the load balancer remove the node before its pod begins to terminate.
func removedBefore(s *fakeRun) *fakeRun {
	s.balance(ms(19900), "web", webAddress, "node-2")
	return s
}

// otherService is a run in which only a pod of an unmeasured Service terminates.
func otherService() *fakeRun {
	s := rolled()
	for i, e := range s.events {
		switch b := e.Body.(type) {
		case record.Endpoint:
			b.Service = "other"
			s.events[i].Body = b
		case record.Membership:
			s.balance(e.At, "other", netip.MustParseAddrPort("203.0.113.12:80"), b.Nodes...)
		}
	}
	return s
}

func unproved(s *fakeRun) *fakeRun { s.noProof = true; return s }

func as(s *fakeRun, scenario string) *fakeRun { s.scenario = scenario; return s }

func with(s *fakeRun, key, value string) *fakeRun { s.params[key] = value; return s }
