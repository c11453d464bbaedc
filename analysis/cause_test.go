package analysis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

func outages(t *testing.T, r *Report) []OutageReport {
	t.Helper()
	if len(r.Lanes) == 0 || len(r.Lanes[0].Outages) == 0 {
		t.Fatalf("no outage to explain: %s", r.Sentence())
	}
	return r.Lanes[0].Outages
}

func TestTheFirstCauseIsTheTrueOne(t *testing.T) {
	o := recordtest.Failing()
	r := reportOf(t, o.Start(o.Lab()))
	if r.Unexplained.Count != 0 || r.Unexplained.Share != 0 {
		t.Errorf("unexplained: %+v", r.Unexplained)
	}
	for i, out := range outages(t, r) {
		start := fmt.Sprintf("the only local pod %s on %s started terminating ", out.Backend, recordtest.NodeNames[i])
		if out.Cause.Event != "pod terminating" || !strings.HasPrefix(out.Cause.Text, start) || out.Cause.AfterMs < 0 || out.Cause.AfterMs > 30 {
			t.Errorf("cause %+v, want one that begins with %q", out.Cause, start)
		}
	}
}

func TestWithAnotherLocalPodItIsNotTheOnlyOne(t *testing.T) {
	o := recordtest.Failing()
	s := o.Lab()
	s.Event(10*time.Second, record.KindPod, "node-1", "web-second", "ready", "state", "ready", "pod", "web-second", "node", "node-1")
	s.Event(10*time.Second, record.KindEndpoint, "", "default/web", "ready", "state", "ready", "pod", "web-second", "service", "default/web")
	out := outages(t, reportOf(t, o.Start(s)))[0]
	if !strings.HasPrefix(out.Cause.Text, "pod web-5d9f-aaaa1 on node-1 started terminating") {
		t.Errorf("cause: %s", out.Cause.Text)
	}
}

// The red twin of attribution: what the watchers saw, moved by 10 s, explains nothing.
func TestEventsShiftedByTenSecondsExplainNothing(t *testing.T) {
	watched := []record.Kind{record.KindPod, record.KindEndpoint, record.KindService, record.KindProxy, record.KindKernelChange, record.KindHealthCheck}
	for _, shift := range []time.Duration{10 * time.Second, -10 * time.Second} {
		for _, withBalancer := range []bool{false, true} {
			o := recordtest.Failing()
			s := o.Start(o.Lab())
			for i := range s.Events {
				if e := &s.Events[i]; slices.Contains(watched, e.Kind) || (withBalancer && e.Kind == record.KindMembership) {
					e.At = max(0, e.At+shift)
				}
			}
			r := reportOf(t, s)
			if len(outages(t, r)) == 0 || r.Unexplained.Share < 0.8 {
				t.Errorf("shifted by %v (balancer too: %v): %.0f %% unexplained, want at least 80 %%; first cause: %+v", shift, withBalancer,
					100*r.Unexplained.Share, r.Lanes[0].Outages[0].Cause)
			}
		}
	}
}

func causeOf(t *testing.T, s *recordtest.Lab) CauseReport {
	t.Helper()
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: 5 * time.Second, To: 60 * time.Second})
	all := outages(t, reportOf(t, s))
	if len(all) != 1 || all[0].Node != "node-2" {
		t.Fatalf("outages: %+v", all)
	}
	return all[0].Cause
}

func TestTheNearestHeavyEventOnThePathsNodeWins(t *testing.T) {
	type tell func(s *recordtest.Lab, before time.Duration)
	on := func(kind record.Kind, node, object string, attrs ...string) tell {
		return func(s *recordtest.Lab, before time.Duration) {
			s.Event(recordtest.LossAt-before, kind, node, object, object, attrs...)
		}
	}
	pod := func(node, name, state string) tell {
		return on(record.KindPod, node, name, "state", state, "pod", name, "node", node)
	}
	type at struct {
		tell   tell
		before time.Duration
	}
	const ms = time.Millisecond
	endpoint := func(pod, service, state string) tell {
		return on(record.KindEndpoint, "", service, "state", state, "pod", pod, "service", service, "address", "10.244.2.9")
	}
	for _, c := range []struct {
		name  string
		local bool
		told  []at
		want  string // the cause's event, empty for none
		text  string
	}{
		{"nothing", true, nil, "", "nothing in the record explains it"},
		{"a pod of the node exits", true, []at{{pod("node-2", "web-node-2", "exited"), 12 * ms}}, "pod exited", "pod web-node-2 on node-2 exited 1"},
		{"decoy: a pod on another node exits", true, []at{{pod("node-3", "web-node-3", "exited"), 2 * ms}}, "", ""},
		{"decoy nearer than the cause", true, []at{{pod("node-2", "web-node-2", "exited"), 900 * ms}, {pod("node-3", "web-node-3", "exited"), 1 * ms}}, "pod exited", "web-node-2"},
		{"decoy: the proxy of another node is killed", true, []at{{on(record.KindProxy, "node-1", "bundled", "state", "killed"), 1 * ms}}, "", ""},
		{"decoy: the proxy of another node, Cluster", false, []at{{on(record.KindProxy, "node-1", "bundled", "state", "killed"), 1 * ms}}, "", ""},
		{"decoy: kernel and health of another node", true, []at{{on(record.KindKernelChange, "node-3", "x", "table", "ipvs", "change", "removed", "backend", "b"), 1 * ms},
			{on(record.KindHealthCheck, "node-1", "x", "result", "fail"), 1 * ms}}, "", ""},
		{"decoy: a pod of another service on the node", true, []at{{pod("node-2", "other-node-2", "exited"), 1 * ms}}, "", ""},
		{"decoy: an endpoint on another node", true, []at{{endpoint("web-node-3", "default/web", "removed"), 1 * ms}}, "", ""},
		{"decoy: an endpoint of another service", true, []at{{endpoint("other-node-2", "default/other", "removed"), 1 * ms}}, "", ""},
		{"decoy: an endpoint on an unknown node", true, []at{{endpoint("stranger", "default/web", "removed"), 1 * ms}}, "", ""},
		{"an event that its watcher saw a little late", true, []at{{pod("node-2", "web-node-2", "exited"), -8 * ms}}, "pod exited", "recorded 8.0 ms after"},
		{"what came before rather than what was seen late", true, []at{{pod("node-2", "web-node-2", "terminating"), 3 * ms}, {pod("node-2", "web-node-2", "exited"), -15 * ms}},
			"pod terminating", ""},
		{"a pod that ends as soon as it is told to", true, []at{{pod("node-2", "web-node-2", "terminating"), 40 * ms}, {pod("node-2", "web-node-2", "exited"), 2 * ms}}, "pod terminating", ""},
		{"its cleanup rather than its end", true, []at{{on(record.KindProxy, "node-2", "bundled", "state", "exited"), 5 * ms}, {on(record.KindProxy, "node-2", "bundled", "state", "cleanup"), 4 * ms}},
			"proxy cleanup", "the proxy on node-2 began to clean up "},
		{"its tables rather than its process", true, []at{{on(record.KindProxy, "node-2", "bundled", "state", "stopped"), 5 * ms}, {on(record.KindProxy, "node-2", "bundled", "state", "flushed"), 4 * ms}},
			"proxy flushed", "the proxy on node-2 had its tables emptied "},
		{"decoy: an event after it began", true, []at{{pod("node-2", "web-node-2", "exited"), -100 * ms}}, "", ""},
		{"decoy: an old event", true, []at{{pod("node-2", "web-node-2", "exited"), 9 * time.Second}}, "", ""},
		{"decoy: a pod gets ready", true, []at{{pod("node-2", "web-node-2", "ready"), 1 * ms}}, "", ""},
		{"the proxy is killed", true, []at{{on(record.KindProxy, "node-2", "bundled", "state", "killed"), 40 * ms}}, "proxy killed", "the proxy on node-2 was killed "},
		{"a sync is not preferred to a kill", true, []at{{on(record.KindProxy, "node-2", "bundled", "state", "killed"), 800 * ms},
			{on(record.KindProxy, "node-2", "bundled", "state", "synced"), 5 * ms}}, "proxy killed", ""},
		{"a known fault beats all", true, []at{{on(record.KindFault, "node-2", "flush-1", "fault", "flush", "state", "begin", "id", "f"), 5 * ms},
			{on(record.KindFault, "node-2", "flush-1", "fault", "flush", "state", "end", "id", "f"), -300 * ms},
			{on(record.KindKernelChange, "node-2", "x", "table", "ipvs", "change", "removed", "backend", "b"), 4 * ms}, {on(record.KindProxy, "node-2", "bundled", "state", "stopped"), 3 * ms}},
			"injected flush", "a known fault (flush) was injected on node-2 "},
		{"decoy: a known fault that was over before", true, []at{{on(record.KindFault, "node-2", "f", "fault", "flush", "state", "begin", "id", "f"), 900 * ms},
			{on(record.KindFault, "node-2", "f", "fault", "flush", "state", "end", "id", "f"), 600 * ms}}, "", ""},
		{"decoy: the proof of the detector", true, []at{{on(record.KindFault, "node-2", "f", "fault", "drop", "state", "begin", "id", "f", "control", "true", "lane", "canary"), 5 * ms}}, "", ""},
		{"decoy: a fault for another lane", true, []at{{on(record.KindFault, "node-2", "f", "fault", "drop", "state", "begin", "id", "f", "lane", "canary"), 5 * ms}}, "", ""},
		{"the root before what follows from it", true, []at{{pod("node-2", "web-node-2", "terminating"), 1200 * ms},
			{endpoint("web-node-2", "default/web", "serving-terminating"), 1100 * ms}, {on(record.KindKernelChange, "node-2", "x", "table", "ipvs", "change", "removed", "backend", "b"), 3 * ms}},
			"pod terminating", "the only local pod web-node-2 on node-2 started terminating 1.2"},
		{"the end rather than its announcement", true, []at{{pod("node-2", "web-node-2", "terminating"), 3 * time.Second}, {pod("node-2", "web-node-2", "exited"), 5 * ms}}, "pod exited", ""},
		{"Cluster: a backend on another node exits", false, []at{{pod("node-3", "web-node-3", "exited"), 5 * ms}}, "pod exited", "web-node-3"},
		{"Cluster: decoy of another service", false, []at{{pod("node-3", "other-node-3", "exited"), 5 * ms}}, "", ""},
		{"Cluster: the own node's backend wins", false, []at{{pod("node-3", "web-node-3", "exited"), 5 * ms}, {pod("node-2", "web-node-2", "exited"), 5 * ms}}, "pod exited", "web-node-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := recordtest.DropOnNode2(c.local)
			for _, told := range c.told {
				told.tell(s, told.before)
			}
			cause := causeOf(t, s)
			if cause.Event != c.want || !strings.Contains(cause.Text, c.text) {
				t.Errorf("cause %+v, want %q with %q", cause, c.want, c.text)
			}
		})
	}
}

// One stale backend among several makes many short outages; all of them have the one cause.
func TestManyShortOutagesKeepTheirCause(t *testing.T) {
	s := recordtest.DropOnNode2(false)
	s.Faults = nil
	for i := range 100 { // 9 s of failures, each too short to be one outage with the next
		at := recordtest.LossAt + time.Duration(i)*90*time.Millisecond
		s.Faults = append(s.Faults, recordtest.Fault{Node: "node-2", AnyLane: true, From: at, To: at + 20*time.Millisecond, Class: record.Refused})
	}
	s.Event(recordtest.LossAt-5*time.Millisecond, record.KindPod, "node-2", "web-node-2", "exited", "state", "exited", "pod", "web-node-2", "node", "node-2")
	s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: 5 * time.Second, To: 60 * time.Second})
	r := reportOf(t, s)
	if n := len(outages(t, r)); n < 50 {
		t.Fatalf("only %d outages", n)
	}
	if r.Unexplained.Count > 0 {
		t.Errorf("unexplained: %+v of %d", r.Unexplained, r.Totals.Dropped)
	}
	last := r.Lanes[0].Outages[len(r.Lanes[0].Outages)-1]
	if last.Cause.AfterMs < 8000 || last.Cause.AfterMs > 10000 {
		t.Errorf("the last one began %v ms after its cause, want about 9 s", last.Cause.AfterMs)
	}
}

// Losses that go on and on are not explained by an event of long ago, only because each follows the one before.
func TestACauseIsNotCarriedForEver(t *testing.T) {
	for name, class := range map[string]func(int) record.Class{
		"the same way":   func(int) record.Class { return record.Refused },
		"in another way": func(i int) record.Class { return recordtest.FaultClasses[i%10] },
	} {
		s := recordtest.DropOnNode2(true)
		s.Faults = nil
		for i := range 180 { // 18 s
			at := recordtest.LossAt + time.Duration(i)*100*time.Millisecond
			s.Faults = append(s.Faults, recordtest.Fault{Node: "node-2", AnyLane: true, From: at, To: at + 40*time.Millisecond, Class: class(i)})
		}
		s.Event(recordtest.LossAt-5*time.Millisecond, record.KindPod, "node-2", "web-node-2", "exited", "state", "exited", "pod", "web-node-2", "node", "node-2")
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: 5 * time.Second, To: 60 * time.Second})
		r := reportOf(t, s)
		least := 0.1
		if name == "in another way" {
			least = 0.6
		}
		if r.Unexplained.Share < least {
			t.Errorf("%s: %+v of %d, want a share of at least %v", name, r.Unexplained, r.Totals.Dropped, least)
		}
	}
}

// With somebody else's balancer nobody knows an attempt's node: the ends of pods explain what was lost all the same. Ten seconds
// off they explain half of it at most, because the loss in a rollout lasts longer than that; and a stranger's pods none.
func TestWithoutABalancersTableTheAPIExplains(t *testing.T) {
	of := func(change func(e *recordtest.Event)) *Report {
		o := recordtest.Failing()
		s := o.Start(o.Lab())
		s.Events = slices.DeleteFunc(s.Events, func(e recordtest.Event) bool {
			return e.Kind == record.KindMembership || e.Kind == record.KindHealthCheck
		})
		for i := range s.Events {
			switch e := &s.Events[i]; e.Kind {
			case record.KindLane:
				e.Attrs["service"] = "default/" + e.Object
			case record.KindPod, record.KindEndpoint:
				change(e)
			}
		}
		return reportOf(t, s)
	}
	r := of(func(*recordtest.Event) {})
	if first := outages(t, r)[0]; r.Unexplained.Share > 0.05 || first.Cause.Event != "pod terminating" {
		t.Errorf("%.2f of the losses are unexplained; the first outage is by %+v", r.Unexplained.Share, first.Cause)
	}
	if off := of(func(e *recordtest.Event) { e.At = max(0, e.At-10*time.Second) }); off.Unexplained.Share < 0.4 {
		t.Errorf("10 s off, %.2f are unexplained", off.Unexplained.Share)
	}
	if other := of(func(e *recordtest.Event) {
		if e.Attrs["service"] != "" {
			e.Attrs["service"] = "shop/other"
		}
	}); other.Unexplained.Share < 1 {
		t.Errorf("the pods of another Service explain all but %.2f", other.Unexplained.Share)
	}
}
