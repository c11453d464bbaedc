package reports

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// A Service may have one port number for TCP and for UDP; they are balanced apart.
func TestProtocolsHaveTablesOfTheirOwn(t *testing.T) {
	s := newLab(1)
	s.services[webAddress] = &service{name: "web", seed: 7, local: true}
	s.pod(simPod{name: "web-1", node: "node-1", service: "web", ready: 100 * time.Millisecond})
	s.balance(webAddress, 200*time.Millisecond, "node-1")
	s.event(300*time.Millisecond, record.KindMembership, "", "web", "udp", "address", "203.0.113.10", "port", "80", "protocol", "udp", "nodes", "node-2", "policy", "sticky", "seed", "7")
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 10, from: time.Second, to: 2 * time.Second})
	if paths := s.report(t).Lanes[0].Paths; len(paths) != 1 || paths[0].Node != "node-1" {
		t.Errorf("a TCP lane went over %+v", paths)
	}
}

// A misrouted answer says nothing about the path, so that it cannot contradict the load balancer's choice.
func TestAMisroutedAnswerContradictsNoPath(t *testing.T) {
	o := rolling{seed: 6, fallback: true, rollouts: 1}
	s := o.start(o.lab())
	for i := range s.attempts {
		if at := &s.attempts[i]; at.Seq%100 == 7 {
			at.Class, at.Node = record.Misrouted, "node-3"
		}
	}
	if err := CheckPaths(s.write(t)); err != nil {
		t.Error(err)
	}
}
