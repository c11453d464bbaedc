package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func TestEachRolloutHasOneCleanOutageBehindATerminatingBalancer(t *testing.T) {
	h := recordtest.DropBehindHAProxy().Write(t)
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
		if truth := units.Millis(recordtest.CheckOut); out.Node != recordtest.NodeNames[i] || out.LowerMs > truth || out.UpperMs < truth || out.UpperMs-out.LowerMs > 60 {
			t.Errorf("rollout %d: %v to %v ms on %s, want close bounds round %v ms on %s", i+1, out.LowerMs, out.UpperMs, out.Node, truth, recordtest.NodeNames[i])
		}
		if want := "the only local pod " + out.Backend + " on " + recordtest.NodeNames[i] + " started terminating"; !strings.HasPrefix(out.Cause.Text, want) ||
			!strings.Contains(out.Cause.Text, recordtest.NodeNames[i]+" failed its health checks from") || !strings.Contains(out.Cause.Text, "(503)") {
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
	o := recordtest.Rollout{Seed: 1, Fallback: true, Rollouts: 1, Log: &recordtest.BalancerLog{
		Mute: func(f record.Flow) bool { return f.At > 40*time.Second && f.At < 41*time.Second && f.Node == "node-2" }}}
	h := o.Start(o.Lab()).Write(t)
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
	s := recordtest.DropBehindHAProxy()
	for i := range s.Events {
		if e := &s.Events[i]; e.Kind == record.KindFlows {
			e.Attrs["flows"] = strings.ReplaceAll(e.Attrs["flows"], "node-2", "node-3")
		}
	}
	if err := CheckPaths(s.Write(t)); err == nil || !strings.Contains(err.Error(), "the balancer's log gives node-3") {
		t.Errorf("a log with wrong nodes gave %v", err)
	}
}

// What is lost before the balancer chose a node is lost on the way to it: each good attempt bounds it, on whatever node.
func TestALossBeforeTheBalancerIsNoNodes(t *testing.T) {
	s := recordtest.DropOnNode2(false)
	s.Events, s.Log = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool { return e.Kind == record.KindMembership }), &recordtest.BalancerLog{}
	s.Balance(recordtest.WebAddress, 3*time.Second, recordtest.NodeNames...)
	s.Faults = []recordtest.Fault{{AnyLane: true, From: recordtest.LossAt, To: recordtest.LossAt + 300*time.Millisecond, Class: record.Refused},
		{AnyLane: true, From: recordtest.LossAt + 10*time.Second, To: recordtest.LossAt + 10200*time.Millisecond, Class: record.Delayed}}
	s.Event(recordtest.LossAt-200*time.Microsecond, record.KindMembership, "", "default/web", "reload", "service", "default/web", "address", "203.0.113.10", "port", "80",
		"nodes", everyNode, "all", everyNode, "policy", "roundrobin", "reloaded", "true")
	s.Event(recordtest.LossAt+10*time.Second-time.Millisecond, record.KindPod, "node-2", "web-node-2", "ends", "state", "terminating", "pod", "web-node-2", "node", "node-2")
	s.Event(20*time.Second, record.KindNode, "node-3", "node-3", "lost power", "state", "off") // and is in the membership no more
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: 5 * time.Second, To: 60 * time.Second})
	all := outages(t, reportOf(t, s))
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
