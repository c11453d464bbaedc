package analysis

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// What the watchers saw. The balancer's table is no part of it: without that there are no paths.
var watchedKinds = []record.Kind{record.KindPod, record.KindEndpoint, record.KindProxy, record.KindKernelChange, record.KindHealthCheck, record.KindFault}

// Of the failed attempts of many runs, how many are explained when what was watched is changed.
func explainedShare(t *testing.T, change func(seed uint64, s *recordtest.Lab)) float64 {
	t.Helper()
	failed, unexplained := 0, 0
	for seed := uint64(1); seed <= 20; seed++ {
		s := recordtest.Broken(seed)
		change(seed, s)
		r := reportOf(t, s)
		if len(r.Lanes[0].Outages) < 2 {
			t.Fatalf("seed %d: %d outages", seed, len(r.Lanes[0].Outages))
		}
		failed += r.Totals.Dropped
		unexplained += r.Unexplained.Count
	}
	return 1 - float64(unexplained)/float64(failed)
}

func TestTheExplainedShareNeedsTheRightEvents(t *testing.T) {
	watched := func(e recordtest.Event) bool { return slices.Contains(watchedKinds, e.Kind) }
	shifted := func(by time.Duration) func(uint64, *recordtest.Lab) {
		return func(_ uint64, s *recordtest.Lab) {
			for i := range s.Events {
				if watched(s.Events[i]) {
					s.Events[i].At = max(0, s.Events[i].At+by)
				}
			}
		}
	}
	if share := explainedShare(t, func(uint64, *recordtest.Lab) {}); share < 0.95 {
		t.Errorf("with their own events %.0f %% are explained", 100*share)
	}
	for name, change := range map[string]func(uint64, *recordtest.Lab){
		"10 s later":   shifted(10 * time.Second),
		"10 s earlier": shifted(-10 * time.Second),
		"of another run": func(seed uint64, s *recordtest.Lab) {
			other := recordtest.Broken(seed + 1000)
			s.Events = append(slices.DeleteFunc(s.Events, watched), slices.DeleteFunc(other.Events, func(e recordtest.Event) bool { return !watched(e) })...)
		},
		"none": func(_ uint64, s *recordtest.Lab) { s.Events = slices.DeleteFunc(s.Events, watched) },
	} {
		if share := explainedShare(t, change); share >= 0.2 {
			t.Errorf("with events %s %.0f %% are explained", name, 100*share)
		}
	}
}

// However near to the outage a decoy is, the event that did it ranks first.
func TestADecoyNearTheOutageIsNotRankedFirst(t *testing.T) {
	decoys := map[string]func(s *recordtest.Lab, at time.Duration, n int){
		"the same elsewhere": func(s *recordtest.Lab, at time.Duration, n int) {
			s.Happens(n%4, at, []string{"node-1", "node-3"}[n%2])
		},
		"another service": func(s *recordtest.Lab, at time.Duration, _ int) {
			s.Event(at, record.KindPod, "node-2", "other-node-2", "exited", "state", "exited", "pod", "other-node-2", "node", "node-2")
		},
		"the proof": func(s *recordtest.Lab, at time.Duration, _ int) {
			s.Event(at, record.KindFault, "node-2", "p", "begin", "fault", "drop", "state", "begin", "id", "p", "control", "true", "lane", "canary")
		},
		"a lesser event": func(s *recordtest.Lab, at time.Duration, n int) {
			[]func(){
				func() { s.Event(at, record.KindProxy, "node-2", "bundled", "synced", "state", "synced") },
				func() { s.Event(at, record.KindHealthCheck, "node-2", "web", "fails", "result", "fail") },
				func() {
					s.Event(at, record.KindPod, "node-2", "web-node-2", "ready", "state", "ready", "pod", "web-node-2", "node", "node-2")
				},
				func() {
					s.Event(at, record.KindKernelChange, "node-2", "x", "changed", "table", "ipvs", "change", "weight", "backend", "b")
				},
			}[n%4]()
		},
		"what came after": func(s *recordtest.Lab, at time.Duration, n int) {
			s.Happens(n%4, recordtest.LossAt+2*time.Second-(recordtest.LossAt-at), "node-2")
		},
	}
	names := []string{"the same elsewhere", "another service", "the proof", "a lesser event", "what came after"}
	rapid.Check(t, func(rt *rapid.T) {
		s := recordtest.DropOnNode2(true)
		before := time.Duration(rapid.IntRange(0, 1000).Draw(rt, "cause before, ms")) * time.Millisecond
		which := rapid.IntRange(0, 3).Draw(rt, "cause")
		if which == 3 {
			before = min(before, 600*time.Millisecond) // a fault lasts a second
		}
		want := s.Happens(which, recordtest.LossAt-before, "node-2")
		for range rapid.IntRange(1, 3).Draw(rt, "decoys") {
			at := recordtest.LossAt - time.Duration(rapid.IntRange(0, int(before/time.Millisecond)).Draw(rt, "decoy before, ms"))*time.Millisecond
			decoys[rapid.SampledFrom(names).Draw(rt, "decoy")](s, at, rapid.IntRange(0, 7).Draw(rt, "kind"))
		}
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 300, From: recordtest.LossAt - 2*time.Second, To: recordtest.LossAt + 2*time.Second})
		all := reportOf(t, s).Lanes[0].Outages
		if len(all) != 1 || all[0].Cause.Event != want {
			rt.Fatalf("want %q as the cause of one outage, got %+v", want, all)
		}
	})
}
