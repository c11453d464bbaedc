package recordtest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// BalancerLog makes the model's balancer one that terminates connections: it gives them to its nodes in turn, whatever
// their five-tuples, answers the client's SYN itself, and tells its choices some milliseconds off.
type BalancerLog struct {
	turn  int
	flows []record.Flow
	Mute  func(record.Flow) bool // what it does not tell; nil for nothing
}

// take gives a connection to the next node and logs that.
func (b *BalancerLog) take(s *Lab, svc *Service, a *record.Attempt, at time.Duration) string {
	nodes := svc.nodes(at)
	if len(nodes) == 0 {
		return ""
	}
	b.turn++
	f := record.Flow{Source: a.Source, Node: nodes[b.turn%len(nodes)], At: at + time.Duration(s.Random.IntN(8000)-3000)*time.Microsecond}
	if b.Mute == nil || !b.Mute(f) {
		b.flows = append(b.flows, f)
	}
	return f.Node
}

// tell puts the log into the record, in batches.
func (b *BalancerLog) tell(s *Lab, target netip.AddrPort) {
	for part := range slices.Chunk(b.flows, 50) {
		s.Event(part[len(part)-1].At+time.Second, record.KindFlows, "", "web", "flows", "address", target.Addr().String(), "port", "80", "protocol", "tcp",
			"flows", flowsText(part))
	}
	b.flows = nil
}

// terminatedAttempt is an attempt of the model behind a terminating balancer. A fault on no node lies before it.
func (s *Lab) terminatedAttempt(a record.Attempt, l Lane, svc *Service) record.Attempt {
	at := a.Start + s.Travel
	hit := func(node string) record.Class {
		for _, f := range s.Faults {
			if (f.AnyLane || f.Lane == l.ID) && f.Node == node && f.From <= at && at < f.To {
				return f.Class
			}
		}
		return record.OK
	}
	if class := hit(""); class == record.Delayed { // the second SYN comes through
		s.Log.take(s, svc, &a, at+time.Second)
		return FailedAttempt(a, class)
	} else if class != record.OK {
		return FailedAttempt(a, class)
	}
	node := s.Log.take(s, svc, &a, at)
	p := s.serving(svc, node, at)
	if node == "" {
		return FailedAttempt(a, record.Closed)
	}
	class := hit(node)
	a.Connect = 2 * s.Travel
	a.Total, a.Class = a.Connect+500*time.Microsecond, class
	if class != record.OK {
		a.Total = a.Connect + time.Second
		return a
	}
	if p == nil {
		a.Total, a.Class = a.Connect+time.Second, record.ReplyTimeout
		return a
	}
	a.Backend, a.Node, a.Generation = p.Name, p.Node, p.generation
	return a
}

// DropBehindHAProxy is a rollout of which the old node drops for 12.3 s while the balancer gives it each second
// connection.
func DropBehindHAProxy() *Lab {
	o := Failing()
	o.Log = &BalancerLog{}
	return o.Start(o.Lab())
}

func flowsText(flows []record.Flow) string {
	text, err := record.FlowList(flows).MarshalText()
	if err != nil {
		panic(err) // FlowList formats every list
	}
	return string(text)
}
