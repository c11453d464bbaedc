package analysis

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A Service may have one port number for TCP and for UDP; they are balanced apart.
func TestProtocolsHaveTablesOfTheirOwn(t *testing.T) {
	s := recordtest.NewLab(1)
	s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "web", Seed: 7, Local: true}
	s.Pod(recordtest.Pod{Name: "web-1", Node: "node-1", Service: "web", Ready: 100 * time.Millisecond})
	s.Balance(recordtest.WebAddress, 200*time.Millisecond, "node-1")
	s.Event(300*time.Millisecond, record.KindMembership, "", "web", "udp", "address", "203.0.113.10", "port", "80", "protocol", "udp", "nodes", "node-2", "policy", "sticky", "seed", "7")
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 10, From: time.Second, To: 2 * time.Second})
	if paths := reportOf(t, s).Lanes[0].Paths; len(paths) != 1 || paths[0].Node != "node-1" {
		t.Errorf("a TCP lane went over %+v", paths)
	}
}

// A misrouted answer says nothing about the path, so that it cannot contradict the load balancer's choice.
func TestAMisroutedAnswerContradictsNoPath(t *testing.T) {
	o := recordtest.Rollout{Seed: 6, Fallback: true, Rollouts: 1}
	s := o.Start(o.Lab())
	for i := range s.Attempts {
		if at := &s.Attempts[i]; at.Seq%100 == 7 {
			at.Class, at.Node = record.Misrouted, "node-3"
		}
	}
	if err := CheckPaths(s.Write(t)); err != nil {
		t.Error(err)
	}
}
