package reports

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// balancerLog makes the model's balancer one that terminates connections: it gives them to its nodes in turn, whatever
// their five-tuples, answers the client's SYN itself, and tells its choices some milliseconds off.
type balancerLog struct {
	turn  int
	flows []record.Flow
	mute  func(record.Flow) bool // what it does not tell; nil for nothing
}

// take gives a connection to the next node and logs that.
func (b *balancerLog) take(s *lab, svc *service, a *record.Attempt, at time.Duration) string {
	nodes := svc.nodes(at)
	if len(nodes) == 0 {
		return ""
	}
	b.turn++
	f := record.Flow{Source: a.Source, Node: nodes[b.turn%len(nodes)], At: at + time.Duration(s.random.IntN(8000)-3000)*time.Microsecond}
	if b.mute == nil || !b.mute(f) {
		b.flows = append(b.flows, f)
	}
	return f.Node
}

// tell puts the log into the record, in batches.
func (b *balancerLog) tell(s *lab, target netip.AddrPort) {
	for part := range slices.Chunk(b.flows, 50) {
		s.event(part[len(part)-1].At+time.Second, record.KindFlows, "", "web", "flows", "address", target.Addr().String(), "port", "80", "protocol", "tcp",
			"flows", record.FormatFlows(part))
	}
	b.flows = nil
}

// terminatedAttempt is an attempt of the model behind a terminating balancer. A fault on no node lies before it.
func (s *lab) terminatedAttempt(a record.Attempt, l simLane, svc *service) record.Attempt {
	at := a.Start + s.travel
	hit := func(node string) record.Class {
		for _, f := range s.faults {
			if (f.anyLane || f.lane == l.id) && f.node == node && f.from <= at && at < f.to {
				return f.class
			}
		}
		return record.OK
	}
	if class := hit(""); class == record.Delayed { // the second SYN comes through
		s.log.take(s, svc, &a, at+time.Second)
		return failedAttempt(a, class)
	} else if class != record.OK {
		return failedAttempt(a, class)
	}
	node := s.log.take(s, svc, &a, at)
	p := s.serving(svc, node, at)
	if node == "" {
		return failedAttempt(a, record.Closed)
	}
	class := hit(node)
	a.Connect = 2 * s.travel
	a.Total, a.Class = a.Connect+500*time.Microsecond, class
	if class != record.OK {
		a.Total = a.Connect + time.Second
		return a
	}
	if p == nil {
		a.Total, a.Class = a.Connect+time.Second, record.ReplyTimeout
		return a
	}
	a.Backend, a.Node, a.Generation = p.name, p.node, p.generation
	return a
}

// dropBehindHAProxy is a rollout of which the old node drops for 12.3 s while the balancer gives it each second
// connection.
func dropBehindHAProxy() *lab {
	o := failing()
	o.log = &balancerLog{}
	return o.start(o.lab())
}

func TestEachRolloutHasOneCleanOutageBehindATerminatingBalancer(t *testing.T) {
	h := dropBehindHAProxy().write(t)
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Fail || r.Unexplained.Count != 0 {
		t.Errorf("verdict %s (%v), %d unexplained; want a failed run that is explained", r.Verdict, r.Reasons, r.Unexplained.Count)
	}
	all := outages(t, r)
	if len(all) != 2 {
		t.Fatalf("two rollouts made %d outages; the first is %+v", len(all), all[0])
	}
	for i, out := range all {
		if truth := millis(checkOut); out.Node != nodeNames[i] || out.LowerMs > truth || out.UpperMs < truth || out.UpperMs-out.LowerMs > 60 {
			t.Errorf("rollout %d: %v to %v ms on %s, want close bounds round %v ms on %s", i+1, out.LowerMs, out.UpperMs, out.Node, truth, nodeNames[i])
		}
		if want := "the only local pod " + out.Backend + " on " + nodeNames[i] + " started terminating"; !strings.HasPrefix(out.Cause.Text, want) ||
			!strings.Contains(out.Cause.Text, nodeNames[i]+" failed its health checks from") || !strings.Contains(out.Cause.Text, "(503)") {
			t.Errorf("rollout %d: the cause is %q, want it to begin with %q and to tell of the health check", i+1, out.Cause.Text, want)
		}
	}
	if err := CheckAgreement(h, r); err != nil {
		t.Error(err)
	}
	if err := CheckPaths(h); err != nil {
		t.Error(err)
	}
}

// The red twins: without the balancer's log nobody knows the nodes, and a log that is wrong is found.
func TestALogWithHolesMakesARunInvalid(t *testing.T) {
	o := rolling{seed: 1, fallback: true, rollouts: 1, log: &balancerLog{
		mute: func(f record.Flow) bool { return f.At > 40*time.Second && f.At < 41*time.Second && f.Node == "node-2" }}}
	h := o.start(o.lab()).write(t)
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Invalid || !strings.Contains(strings.Join(r.Reasons, "\n"), "the balancer's log lacks") {
		t.Errorf("verdict %s (%v), want an invalid run for the log's sake", r.Verdict, r.Reasons)
	}
	if err := CheckPaths(h); err == nil {
		t.Error("CheckPaths does not miss the lines")
	}
}

func TestAWrongLogIsFound(t *testing.T) {
	s := dropBehindHAProxy()
	for i := range s.events {
		if e := &s.events[i]; e.Kind() == record.KindFlows {
			e.Attrs["flows"] = strings.ReplaceAll(e.Attrs["flows"], "node-2", "node-3")
		}
	}
	if err := CheckPaths(s.write(t)); err == nil || !strings.Contains(err.Error(), "the balancer's log gives node-3") {
		t.Errorf("a log with wrong nodes gave %v", err)
	}
}

// What is lost before the balancer chose a node is lost on the way to it: each good attempt bounds it, on whatever node.
func TestALossBeforeTheBalancerIsNoNodes(t *testing.T) {
	s := dropOnNode2(false)
	s.events, s.log = slices.DeleteFunc(s.events, func(e record.Event) bool { return e.Kind() == record.KindMembership }), &balancerLog{}
	s.balance(webAddress, 3*time.Second, nodeNames...)
	s.faults = []fault{{anyLane: true, from: lossAt, to: lossAt + 300*time.Millisecond, class: record.Refused},
		{anyLane: true, from: lossAt + 10*time.Second, to: lossAt + 10200*time.Millisecond, class: record.Delayed}}
	s.event(lossAt-200*time.Microsecond, record.KindMembership, "", "default/web", "reload", "service", "default/web", "address", "203.0.113.10", "port", "80",
		"nodes", everyNode, "all", everyNode, "policy", "roundrobin", "reloaded", "true")
	s.event(lossAt+10*time.Second-time.Millisecond, record.KindPod, "node-2", "web-node-2", "ends", "state", "terminating", "pod", "web-node-2", "node", "node-2")
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 300, from: 5 * time.Second, to: 60 * time.Second})
	all := outages(t, s.report(t))
	if len(all) != 2 {
		t.Fatalf("%d outages, the first is %+v", len(all), all[0])
	}
	for i, truth := range []float64{300, 200} {
		if o := all[i]; o.Node != "" || o.LowerMs > truth || o.UpperMs < truth || o.UpperMs-o.LowerMs > 15 {
			t.Errorf("outage %d: %v to %v ms on %q, want close bounds round %v ms on no node", i+1, o.LowerMs, o.UpperMs, o.Node, truth)
		}
	}
	if got := all[0].Cause.Event; got != "balancer reloaded" {
		t.Errorf("the cause is %q, want the balancer's new start", got)
	}
	if got := all[1].Cause.Event; got != "" {
		t.Errorf("the cause of the second is %q, but what happens to pods cannot be", got)
	}
}

const everyNode = "node-1,node-2,node-3"
