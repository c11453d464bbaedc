package engine

import (
	"context"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// begin gives the history Services to begin with; it is short beside the life of a cluster.
func (r *rig) begin(t *rapid.T) {
	for i := range r.world.services {
		s := &r.world.services[i]
		if s.exists = rapid.Bool().Draw(t, "exists"); !s.exists {
			continue
		}
		for p := range s.pods {
			s.pods[p] = rapid.SampledFrom([]podState{absent, ready, ready}).Draw(t, "state")
		}
		r.dirty[name(i)] = true
	}
	r.enter()
	r.sync()
}

// change is one change in the API.
func (r *rig) change(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "service")
	s := &r.world.services[i]
	switch rapid.SampledFrom([]string{"pod", "pod", "pod", "pod", "flag", "flag", "exists", "node", "clients", "hints", "scheduler"}).Draw(t, "what") {
	case "pod":
		p := rapid.IntRange(0, 3).Draw(t, "pod")
		s.pods[p] = rapid.SampledFrom([]podState{absent, ready, ready, ready, unready, draining, dying}).Draw(t, "state")
	case "flag":
		flags := []*bool{&s.balanced, &s.nodePort, &s.shared, &s.localOut, &s.localIn, &s.secondPort, &s.udpPort, &s.dual, &s.listedInBoth}
		f := flags[rapid.IntRange(0, len(flags)-1).Draw(t, "flag")]
		*f = !*f
	case "exists":
		s.exists = rapid.IntRange(0, 3).Draw(t, "kept") > 0
	case "hints":
		s.hints = rapid.SampledFrom([]hints{noHints, zoneHints, nodeHints, partialHints}).Draw(t, "hints")
	case "scheduler":
		s.scheduler = rapid.IntRange(0, len(schedulers)-1).Draw(t, "scheduler")
	case "clients":
		s.clients = rapid.IntRange(0, len(clientRanges)-1).Draw(t, "clients")
	case "node":
		r.world.address = 1 - r.world.address
	}
	r.dirty[name(i)] = true
	if rapid.IntRange(0, 7).Draw(t, "hostile") == 0 {
		r.world.hostile = hostileService(t)
		r.dirty[hostileName] = true
	}
	r.enter()
}

// connections opens and closes connections on real servers, as clients do.
func (r *rig) connections(t *rapid.T) {
	for _, k := range r.ours() {
		if !k.Protocol.Drains() {
			continue
		}
		for _, real := range r.kernel.State().Reals(k) {
			most := 2
			if real.Weight == 0 {
				most = 0 // no new ones on a real server that drains, and this closes the old ones
			}
			if rapid.Bool().Draw(t, "touch") {
				r.kernel.SetConnections(k, real.Addr, rapid.IntRange(0, most).Draw(t, "active"), rapid.IntRange(0, most).Draw(t, "inactive"))
			}
		}
	}
}

// vandal changes the kernel behind the proxier's back, which finds it out at once or after some other steps.
func (r *rig) vandal(t *rapid.T) {
	keys := r.ours()
	if len(keys) == 0 || r.blind {
		return
	}
	r.blind = true
	k := rapid.SampledFrom(keys).Draw(t, "key")
	var op kernel.Op
	damage := rapid.SampledFrom([]string{"virtual", "real", "weight", "address", "elements"}).Draw(t, "damage")
	switch reals := r.kernel.State().Reals(k); damage {
	case "virtual":
		op = kernel.DeleteVirtual{Key: k}
	case "real":
		if len(reals) > 0 {
			op = kernel.DeleteReal{Key: k, Real: reals[0].Addr}
		}
	case "weight":
		if len(reals) > 0 {
			op = kernel.SetWeight{Key: k, Real: reals[0].Addr, Weight: 3 - reals[0].Weight}
		}
	case "address":
		if r.kernel.State().Bound(k.Addr) {
			op = kernel.Unbind{Addr: k.Addr}
		}
	case "elements":
		op, r.lost = kernel.ChangeSets{Remove: r.kernel.State().Elements()}, true
	}
	if op != nil {
		r.do(op)
	}
	if rapid.Bool().Draw(t, "found out") {
		r.full()
	}
}

// flush takes all elements away, and the proxier is told of it: it puts them back without reading anything else.
func (r *rig) flush() {
	if r.blind {
		return // only a full pass finds out what else was changed
	}
	r.blind = true
	r.kernel.FlushSets()
	if r.other != nil {
		r.other.flush()
	}
	report, err := r.engine.Restore(context.Background())
	if err != nil {
		r.t.Fatalf("restore: %v", err)
	}
	r.blind = false
	r.settle(report)
}

// poison makes one virtual server one that can be neither changed nor read for two passes.
func (r *rig) poison(t *rapid.T) {
	keys := slices.SortedFunc(maps.Keys(r.worlds[len(r.worlds)-1]), kernel.Key.Compare)
	if len(keys) == 0 {
		return
	}
	r.kernel.FailKey(rapid.SampledFrom(keys).Draw(t, "key"))
	r.sync()
	r.sync()
	r.kernel.ClearFaults()
}

// fault makes one of the next operations fail; the process survives all but the last kind.
func (r *rig) fault(t *rapid.T) {
	f := rapid.SampledFrom([]fake.Fault{fake.Fail, fake.LoseReply, fake.Crash}).Draw(t, "fault")
	r.kernel.FailAt(rapid.IntRange(0, 12).Draw(t, "operation"), f)
	r.sync()
	if f == fake.Crash {
		r.start()
		return
	}
	r.kernel.ClearFaults()
}

// TestHistories is the promise of the proxier: whatever happens to Services and endpoints, whatever fails, and wherever
// the process dies, each Service that has a usable endpoint is served after every single operation, no connection is
// cut, and in the end the kernel holds the contract and nothing else of ours.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, newRig(t, rapid.Bool().Draw(t, "single")))
	})
}

// history lets a rig live through anything, and checks it after each operation and at the end.
func history(t *rapid.T, r *rig) {
	r.begin(t)
	t.Repeat(map[string]func(*rapid.T){
		"change":      r.change,
		"change more": r.change,
		"sync":        func(*rapid.T) { r.sync() },
		"sync more":   func(*rapid.T) { r.sync() },
		"connections": r.connections,
		"send":        r.send,
		"drain":       func(t *rapid.T) { r.drain() },
		"restart":     func(*rapid.T) { r.start() },
		"fault":       r.fault,
		"vandal":      r.vandal,
		"flush":       func(*rapid.T) { r.flush() },
		"poison":      r.poison,
		"time passes": r.age,
		"reconcile":   func(*rapid.T) { r.full() },
	})
	if cut := r.kernel.CutConnections(); cut != r.expired {
		t.Fatalf("%d connections were cut, and the time of %d was up", cut, r.expired)
	}
	r.finish()
}
