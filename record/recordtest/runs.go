package recordtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// SmallRun is a whole run of a few seconds, so that the fuzzing is fast.
func SmallRun() *Lab {
	s := NewLab(3)
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7, Local: true}
	s.Balance(WebAddress, 20*time.Millisecond, "node-1", "node-2")
	s.Phase("baseline", 50*time.Millisecond)
	s.Phase("scenario", 500*time.Millisecond)
	s.Step("break node-2", 600*time.Millisecond, 700*time.Millisecond)
	s.Phase("end", 1500*time.Millisecond)
	for _, node := range []string{"node-1", "node-2"} {
		s.Pod(Pod{Name: "web-" + node, Node: node, Address: "10.244.1.9", Service: "default/web", Ready: 30 * time.Millisecond})
	}
	s.inject("f", Fault{Node: "node-2", AnyLane: true, From: 600 * time.Millisecond, To: 700 * time.Millisecond, Class: record.Refused}, "", false)
	s.Probe(Lane{Name: "web", Target: WebAddress, Rate: 40, From: 50 * time.Millisecond, To: 1500 * time.Millisecond})
	for i := range s.Events {
		s.Events[i].At = max(0, s.Events[i].At)
	}
	return s
}

// PageLabs are the runs that the golden files show.
func PageLabs() map[string]*Lab {
	good := Rollout{Seed: 1, Fallback: true, Rollouts: 3}
	bad := Rollout{Seed: 1, Fallback: false, Rollouts: 2}
	unproved := Rollout{Seed: 1, Rollouts: 1, NoProof: true}
	mixed := Rollout{Seed: 5, Fallback: true, Rollouts: 2}
	s := mixed.Lab()
	for i, class := range FaultClasses {
		from := ScenarioAt + time.Duration(3*i)*time.Second
		s.Faults = append(s.Faults, Fault{AnyLane: true, Node: NodeNames[i%3], From: from, To: from + 300*time.Millisecond, Class: class})
	}
	return map[string]*Lab{"mixed": mixed.Start(s), "invalid": unproved.Start(unproved.Lab()), "pass": good.Start(good.Lab()), "fail": bad.Start(bad.Lab())}
}

func Clean() Rollout { return Rollout{Seed: 1, Fallback: true, Rollouts: 2} }

// Failing is a rollout whose old pods are not used once they terminate: every failed connection has one true cause.
func Failing() Rollout { return Rollout{Seed: 1, Fallback: false, Rollouts: 2} }

// DropOnNode2 is a run whose only loss is 300 ms on node-2 of a lane over three nodes, at 40 s.
func DropOnNode2(local bool) *Lab {
	s := NewLab(2)
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7, Local: local}
	for i, node := range NodeNames {
		s.Pod(Pod{Name: "web-" + node, Node: node, Address: fmt.Sprintf("10.244.%d.9", i+1), Service: "default/web", Ready: 2 * time.Second})
		s.Pod(Pod{Name: "other-" + node, Node: node, Address: fmt.Sprintf("10.244.%d.8", i+1), Service: "default/other", Ready: 2 * time.Second})
	}
	s.Balance(WebAddress, 3*time.Second, NodeNames...)
	s.Phase("baseline", 5*time.Second)
	s.Phase("scenario", 25*time.Second)
	s.Phase("end", 60*time.Second)
	s.Faults = []Fault{{Node: "node-2", AnyLane: true, From: LossAt, To: LossAt + 300*time.Millisecond, Class: record.ConnectTimeout}}
	return s
}

// Broken is a run of 90 s over three nodes on which something happens now and then, and costs connections on its node.
// Two of them with different seeds have nothing in common but their nodes.
func Broken(seed uint64) *Lab {
	s := NewLab(seed)
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7, Local: true}
	for i, node := range NodeNames {
		s.Pod(Pod{Name: "web-" + node, Node: node, Address: fmt.Sprintf("10.244.%d.9", i+1), Service: "default/web", Ready: 2 * time.Second})
	}
	s.Balance(WebAddress, 3*time.Second, NodeNames...)
	s.Phase("baseline", 5*time.Second)
	s.Phase("scenario", 10*time.Second)
	s.Phase("end", 90*time.Second)
	for i := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(i)+100))
		at := time.Duration(15+40*i)*time.Second + time.Duration(random.IntN(30000))*time.Millisecond
		node := NodeNames[random.IntN(3)]
		s.Happens(random.IntN(4), at, node)
		after := time.Duration(random.IntN(40)) * time.Millisecond
		s.Faults = append(s.Faults, Fault{Node: node, AnyLane: true, From: at + after, To: at + after + time.Second, Class: record.Refused})
	}
	s.Probe(Lane{ID: 0, Name: "web", Target: WebAddress, Rate: 50, From: 5 * time.Second, To: 90 * time.Second})
	return s
}

// Happens tells one of the events that cost connections on a node.
func (s *Lab) Happens(which int, at time.Duration, node string) (event string) {
	switch which {
	case 0:
		s.Event(at, record.KindPod, node, "web-"+node, "exited", "state", "exited", "pod", "web-"+node, "node", node)
		return "pod exited"
	case 1:
		s.Event(at, record.KindProxy, node, "bundled", "killed", "state", "killed")
		return "proxy killed"
	case 2:
		s.Event(at, record.KindProxy, node, "bundled", "flushed", "state", "flushed")
		return "proxy flushed"
	}
	s.Event(at, record.KindFault, node, "fault", "begin", "fault", "drop", "state", "begin", "id", "f"+at.String())
	s.Event(at+time.Second, record.KindFault, node, "fault", "end", "fault", "drop", "state", "end", "id", "f"+at.String())
	return "injected drop"
}

// Asking is a run whose measured Service fails for a while on all nodes, beside lanes to the own addresses of its pods.
func Asking() *Lab {
	o := Rollout{Seed: 4, Fallback: true, Rollouts: 1}
	s := o.Lab()
	s.Faults = append(s.Faults, Fault{Lane: 0, From: LostAt, To: LostAt + DownFor, Class: record.ConnectTimeout})
	return o.Start(s)
}

// Direct declares a lane to a pod's own address on a node, which fails from an instant on for a time.
func (s *Lab) Direct(id uint16, pod, node string, from, length time.Duration) {
	name := "pod-" + pod
	s.Event(time.Second, record.KindLane, "", name, "lane "+name, "id", strconv.Itoa(int(id)), "name", name, "client", "client", "target", "10.244.1.9:8080",
		"protocol", "tcp-new", "policy", "fresh", "close", "fin", "rate", "100", "dialMs", "3000", "replyMs", "1000", "service", "web",
		"control", "true", "role", record.RolePod, "pod", pod, "node", node)
	begin, gap := BaselineAt+4*time.Millisecond, 10*time.Millisecond
	for k := range 5500 {
		at := begin + time.Duration(k)*gap
		a := s.Attempt(Lane{ID: id, Target: CanaryAddress}, s.Services[CanaryAddress], uint64(k), at)
		a.Backend, a.Node = pod, node
		if at >= from && at < from+length {
			a = FailedAttempt(record.Attempt{Lane: id, Seq: a.Seq, Intended: at, Start: a.Start, Source: a.Source}, record.ConnectTimeout)
		}
		s.Attempts = append(s.Attempts, a)
	}
}

// LosingLong is a run whose lane of connections that stay open loses some for a while, in the given way, beside the lane of
// new ones of every run.
func LosingLong(class record.Class) *Lab {
	o := Rollout{Seed: 3, Fallback: true, Rollouts: 1}
	s := o.Lab()
	s.Faults = append(s.Faults, Fault{Lane: longID, From: LostAt, To: LostAt + lostFor, Class: class})
	s = o.Start(s)
	s.Probe(Lane{ID: longID, Name: "tcp-long", Target: WebAddress, Rate: 100, From: BaselineAt + 7*time.Millisecond, To: o.EndAt(), Protocol: record.ProtocolLong})
	return s
}

// Fresh declares the lane of the new connections that are tried when one of tcp-long fails, and makes those with the given
// outcomes, the first at an instant and then one each 20 ms.
func (s *Lab) Fresh(at time.Duration, outcomes ...record.Class) {
	s.Event(time.Second, record.KindLane, "", "tcp-long-fresh", "lane tcp-long-fresh", "id", strconv.Itoa(longID+1), "name", "tcp-long-fresh", "client", "client",
		"target", WebAddress.String(), "protocol", "tcp-new", "policy", "fresh", "close", "fin", "rate", "100", "dialMs", "3000", "replyMs", "1000",
		"control", "true", "role", record.RoleFresh, "beside", "tcp-long")
	for i, class := range outcomes {
		start := at + time.Duration(i)*20*time.Millisecond
		a := s.Attempt(Lane{ID: longID + 1, Target: WebAddress}, s.Services[WebAddress], uint64(i), start)
		a.Start = start
		if class != record.OK {
			a = FailedAttempt(record.Attempt{Lane: a.Lane, Seq: a.Seq, Intended: start, Start: start, Source: a.Source}, class)
		}
		s.Attempts = append(s.Attempts, a)
	}
}

// The faults of one run each have a class of their own, so that an outage tells which faults it holds.
var FaultClasses = []record.Class{record.Refused, record.Rejected, record.Unreachable, record.ConnectTimeout, record.Reset, record.Closed, record.ReplyTimeout, record.Stalled, record.Misrouted, record.Delayed}

const DownFor = 600 * time.Millisecond

const (
	longID  = 5
	LostAt  = ScenarioAt + 20*time.Second // only one node is in the balancer's table then
	lostFor = 200 * time.Millisecond
)

const LossAt = 40 * time.Second
