package reports

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
)

// What the watchers saw. The balancer's table is no part of it: without that there are no paths.
var watchedKinds = []record.Kind{record.KindPod, record.KindEndpoint, record.KindProxy, record.KindKernelChange, record.KindHealthCheck, record.KindFault}

// broken is a run of 90 s over three nodes on which something happens now and then, and costs connections on its node.
// Two of them with different seeds have nothing in common but their nodes.
func broken(seed uint64) *lab {
	s := newLab(seed)
	s.services[webAddress] = &service{name: "default/web", seed: 7, local: true}
	for i, node := range nodeNames {
		s.pod(simPod{name: "web-" + node, node: node, address: fmt.Sprintf("10.244.%d.9", i+1), service: "default/web", ready: 2 * time.Second})
	}
	s.balance(webAddress, 3*time.Second, nodeNames...)
	s.phase("baseline", 5*time.Second)
	s.phase("scenario", 10*time.Second)
	s.phase("end", 90*time.Second)
	for i := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(i)+100))
		at := time.Duration(15+40*i)*time.Second + time.Duration(random.IntN(30000))*time.Millisecond
		node := nodeNames[random.IntN(3)]
		s.happens(random.IntN(4), at, node)
		after := time.Duration(random.IntN(40)) * time.Millisecond
		s.faults = append(s.faults, fault{node: node, anyLane: true, from: at + after, to: at + after + time.Second, class: record.Refused})
	}
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 50, from: 5 * time.Second, to: 90 * time.Second})
	return s
}

// happens tells one of the events that cost connections on a node.
func (s *lab) happens(which int, at time.Duration, node string) (event string) {
	switch which {
	case 0:
		s.event(at, record.KindPod, node, "web-"+node, "exited", "state", "exited", "pod", "web-"+node, "node", node)
		return "pod exited"
	case 1:
		s.event(at, record.KindProxy, node, "bundled", "killed", "state", "killed")
		return "proxy killed"
	case 2:
		s.event(at, record.KindProxy, node, "bundled", "flushed", "state", "flushed")
		return "proxy flushed"
	}
	s.event(at, record.KindFault, node, "fault", "begin", "fault", "drop", "state", "begin", "id", "f"+at.String())
	s.event(at+time.Second, record.KindFault, node, "fault", "end", "fault", "drop", "state", "end", "id", "f"+at.String())
	return "injected drop"
}

// Of the failed attempts of many runs, how many are explained when what was watched is changed.
func explainedShare(t *testing.T, change func(seed uint64, s *lab)) float64 {
	t.Helper()
	failed, unexplained := 0, 0
	for seed := uint64(1); seed <= 20; seed++ {
		s := broken(seed)
		change(seed, s)
		r := s.report(t)
		if len(r.Lanes[0].Outages) < 2 {
			t.Fatalf("seed %d: %d outages", seed, len(r.Lanes[0].Outages))
		}
		failed += r.Totals.Dropped
		unexplained += r.Unexplained.Count
	}
	return 1 - float64(unexplained)/float64(failed)
}

func TestTheExplainedShareNeedsTheRightEvents(t *testing.T) {
	watched := func(e record.Event) bool { return slices.Contains(watchedKinds, e.Kind()) }
	shifted := func(by time.Duration) func(uint64, *lab) {
		return func(_ uint64, s *lab) {
			for i := range s.events {
				if watched(s.events[i]) {
					s.events[i].At = max(0, s.events[i].At+by)
				}
			}
		}
	}
	if share := explainedShare(t, func(uint64, *lab) {}); share < 0.95 {
		t.Errorf("with their own events %.0f %% are explained", 100*share)
	}
	for name, change := range map[string]func(uint64, *lab){
		"10 s later":   shifted(10 * time.Second),
		"10 s earlier": shifted(-10 * time.Second),
		"of another run": func(seed uint64, s *lab) {
			other := broken(seed + 1000)
			s.events = append(slices.DeleteFunc(s.events, watched), slices.DeleteFunc(other.events, func(e record.Event) bool { return !watched(e) })...)
		},
		"none": func(_ uint64, s *lab) { s.events = slices.DeleteFunc(s.events, watched) },
	} {
		if share := explainedShare(t, change); share >= 0.2 {
			t.Errorf("with events %s %.0f %% are explained", name, 100*share)
		}
	}
}

// However near to the outage a decoy is, the event that did it ranks first.
func TestADecoyNearTheOutageIsNotRankedFirst(t *testing.T) {
	decoys := map[string]func(s *lab, at time.Duration, n int){
		"the same elsewhere": func(s *lab, at time.Duration, n int) { s.happens(n%4, at, []string{"node-1", "node-3"}[n%2]) },
		"another service": func(s *lab, at time.Duration, _ int) {
			s.event(at, record.KindPod, "node-2", "other-node-2", "exited", "state", "exited", "pod", "other-node-2", "node", "node-2")
		},
		"the proof": func(s *lab, at time.Duration, _ int) {
			s.event(at, record.KindFault, "node-2", "p", "begin", "fault", "drop", "state", "begin", "id", "p", "control", "true", "lane", "canary")
		},
		"a lesser event": func(s *lab, at time.Duration, n int) {
			[]func(){
				func() { s.event(at, record.KindProxy, "node-2", "bundled", "synced", "state", "synced") },
				func() { s.event(at, record.KindHealthCheck, "node-2", "web", "fails", "result", "fail") },
				func() {
					s.event(at, record.KindPod, "node-2", "web-node-2", "ready", "state", "ready", "pod", "web-node-2", "node", "node-2")
				},
				func() {
					s.event(at, record.KindKernelChange, "node-2", "x", "changed", "table", "ipvs", "change", "weight", "backend", "b")
				},
			}[n%4]()
		},
		"what came after": func(s *lab, at time.Duration, n int) { s.happens(n%4, lossAt+2*time.Second-(lossAt-at), "node-2") },
	}
	names := []string{"the same elsewhere", "another service", "the proof", "a lesser event", "what came after"}
	rapid.Check(t, func(rt *rapid.T) {
		s := dropOnNode2(true)
		before := time.Duration(rapid.IntRange(0, 1000).Draw(rt, "cause before, ms")) * time.Millisecond
		which := rapid.IntRange(0, 3).Draw(rt, "cause")
		if which == 3 {
			before = min(before, 600*time.Millisecond) // a fault lasts a second
		}
		want := s.happens(which, lossAt-before, "node-2")
		for range rapid.IntRange(1, 3).Draw(rt, "decoys") {
			at := lossAt - time.Duration(rapid.IntRange(0, int(before/time.Millisecond)).Draw(rt, "decoy before, ms"))*time.Millisecond
			decoys[rapid.SampledFrom(names).Draw(rt, "decoy")](s, at, rapid.IntRange(0, 7).Draw(rt, "kind"))
		}
		s.probe(simLane{id: 0, name: "web", target: webAddress, rate: 300, from: lossAt - 2*time.Second, to: lossAt + 2*time.Second})
		all := s.report(t).Lanes[0].Outages
		if len(all) != 1 || all[0].Cause.Event != want {
			rt.Fatalf("want %q as the cause of one outage, got %+v", want, all)
		}
	})
}
