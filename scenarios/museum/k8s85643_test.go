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

// rolled is a rollout from node-1 to node-2 behind externalTrafficPolicy: Local, with health checks of 5 s, 3 in a row: the
// old pod begins to terminate at 20 s and the balancer leaves its node 12.3 s later.
func rolled(losses ...loss) *story {
	s := &story{scenario: "rollout", losses: losses, params: map[string]string{"checkInterval": "5s", "checkFall": "3"}}
	maps.Copy(s.params, k8s85643().Set)
	s.pod(500*time.Millisecond, "web-1", "node-1", "ready")
	s.balance(600*time.Millisecond, "web", webAddress, "node-1")
	s.pod(19*time.Second, "web-2", "node-2", "ready")
	s.balance(19500*time.Millisecond, "web", webAddress, "node-1", "node-2")
	s.pod(20*time.Second, "web-1", "node-1", "terminating")
	s.balance(32300*time.Millisecond, "web", webAddress, "node-2")
	s.pod(50*time.Second, "web-1", "node-1", "exited")
	s.pod(50*time.Second, "web-1", "node-1", "removed")
	return s
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestK8s85643(t *testing.T) {
	whole := func(losses ...loss) *story { return rolled(losses...) }
	for name, c := range map[string]struct {
		story *story
		want  Answer
		say   string
	}{
		"the bug":                        {whole(loss{"node-1", ms(20050), ms(32300), record.Rejected}), Seen, "node-1 dropped for 12."},
		"the bug, black hole":            {whole(loss{"node-1", ms(21500), ms(32300), record.ConnectTimeout}), Seen, "its only local pod web-1"},
		"nothing lost":                   {whole(), NotSeen, "still sent to them: 1"},
		"too short":                      {whole(loss{"node-1", ms(20050), ms(21050), record.Rejected}), NotSeen, "an outage of 9.5s or more"},
		"on the other node":              {whole(loss{"node-2", ms(20050), ms(32300), record.Rejected}), NotSeen, ""},
		"before the pod leaves":          {whole(loss{"node-1", ms(19600), ms(32300), record.Rejected}), NotSeen, ""},
		"long after it":                  {tableAt(whole(loss{"node-1", ms(23200), ms(48000), record.Rejected}), ms(48000)), NotSeen, ""},
		"past the balancer's leaving":    {stays(whole(loss{"node-1", ms(20050), ms(60000), record.Rejected})), NotSeen, ""},
		"over before it":                 {canaryMoves(whole(loss{"node-1", ms(20050), ms(30500), record.Rejected})), NotSeen, ""},
		"left too soon for three checks": {tableAt(whole(loss{"node-1", ms(20050), ms(23000), record.Rejected}), ms(23000)), NotSeen, ""},
		"the bug, and the node again":    {returns(whole(loss{"node-1", ms(20050), ms(32300), record.Rejected})), Seen, "until the load balancer took it out"},
		"slow checks":                    {tableAt(whole(loss{"node-1", ms(20050), ms(48000), record.ReplyTimeout}), ms(48000)), Seen, "node-1 dropped for 2"},
		"another local pod":              {second(whole(loss{"node-1", ms(20050), ms(32300), record.Rejected})), CannotTell, "no node lost its only local pod"},
		"balancer had left":              {leftBefore(whole()), CannotTell, "no node lost its only local pod"},
		"another Service's pod":          {other(), CannotTell, "no node lost its only local pod"},
		"below the floor":                {with(whole(), "checkFall", "1"), CannotTell, "would not have been seen"},
		"no proof":                       {unproved(whole()), CannotTell, "invalid"},
		"bad baseline":                   {whole(loss{"node-1", ms(6000), ms(6500), record.Rejected}), CannotTell, "the baseline is not clean"},
		"another scenario":               {as(whole(), "quiet"), CannotTell, "needs rollout"},
		"another parameter":              {with(whole(), "replicas", "2"), CannotTell, "needs replicas=1"},
	} {
		f := k8s85643().Judge(c.story.record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != c.want || !strings.Contains(text, c.say) {
			t.Errorf("%s: %s: %s; want %s with %q", name, f.Answer, text, c.want, c.say)
		}
	}
}

// stays is a balancer that never leaves the node.
func stays(s *story) *story {
	for i, e := range s.events {
		if b, is := e.Body.(record.Membership); is && slices.Equal(b.Nodes, []string{"node-2"}) {
			b.Nodes = []string{"node-1", "node-2"}
			s.events[i].Body = b
		}
	}
	return s
}

// tableAt is a balancer that takes the old node out at another time.
func tableAt(s *story, at time.Duration) *story {
	for i, e := range s.events {
		if b, is := e.Body.(record.Membership); is && slices.Equal(b.Nodes, []string{"node-2"}) {
			b.From = new(at)
			s.events[i].At, s.events[i].Body = at, b
		}
	}
	return s
}

// canaryMoves is a run in which the table of another Service changes when the outage ends.
func canaryMoves(s *story) *story {
	s.balance(ms(30400), "canary", canaryAddress, "node-9")
	return s
}

// returns is a balancer that later takes the node in and out again.
func returns(s *story) *story {
	s.balance(ms(60000), "web", webAddress, "node-1", "node-2")
	s.balance(ms(70000), "web", webAddress, "node-2")
	return s
}

// second adds a ready pod on the node that the first one leaves.
func second(s *story) *story {
	s.pod(ms(18000), "web-3", "node-1", "ready")
	return s
}

// leftBefore is a balancer that took the node out before its pod began to terminate.
func leftBefore(s *story) *story {
	s.balance(ms(19900), "web", webAddress, "node-2")
	return s
}

// other is a run in which only a pod of a Service that nobody measures leaves its node.
func other() *story {
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

func unproved(s *story) *story { s.noProof = true; return s }

func as(s *story, scenario string) *story { s.scenario = scenario; return s }

func with(s *story, key, value string) *story { s.params[key] = value; return s }
