package engine

import (
	"context"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"net/netip"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// initialServices creates the Services that exist at the start of a history.
func (r *rig) initialServices(t *rapid.T) {
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
	r.recordWorld()
	r.sync()
}

// changeAPI makes one change in the API.
func (r *rig) changeAPI(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "service")
	s := &r.world.services[i]
	switch rapid.SampledFrom([]string{"pod", "pod", "pod", "pod", "flag", "flag", "exists", "node", "clients", "hints", "scheduler"}).Draw(t, "what") {
	case "pod":
		p := rapid.IntRange(0, 3).Draw(t, "pod")
		s.pods[p] = rapid.SampledFrom([]podState{absent, ready, ready, ready, unready, draining, dying}).Draw(t, "state")
	case "flag":
		flags := []*bool{&s.loadBalancer, &s.nodePort, &s.shared, &s.externalLocal, &s.internalLocal, &s.secondPort, &s.udpPort, &s.dualStack, &s.listedInBoth}
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
	r.recordWorld()
}

// changeConnections opens and closes connections on real servers, as clients do.
func (r *rig) changeConnections(t *rapid.T) {
	for _, k := range r.ownKeys() {
		if !k.Protocol.Drains() {
			continue
		}
		for _, real := range r.kernel.State().Reals(k) {
			most := 2
			if real.Weight == 0 {
				most = 0 // a draining real server gets no new connections, and the old ones close
			}
			if rapid.Bool().Draw(t, "touch") {
				r.kernel.SetConnections(k, real.Addr, rapid.IntRange(0, most).Draw(t, "active"), rapid.IntRange(0, most).Draw(t, "inactive"))
			}
		}
	}
}

// changeExternally changes the kernel as another program would. A full pass follows at once or later.
func (r *rig) changeExternally(t *rapid.T) {
	keys := r.ownKeys()
	if len(keys) == 0 || r.changedExternally {
		return
	}
	r.changedExternally = true
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
		op, r.recordsLost = kernel.ChangeSets{Remove: r.kernel.State().Elements()}, true
	}
	if op != nil {
		r.applyExternally(op)
	}
	if rapid.Bool().Draw(t, "full pass") {
		r.full()
	}
}

// flushSets deletes all elements and notifies the proxier, which restores them without reading anything else.
func (r *rig) flushSets() {
	if r.changedExternally {
		return // only a full pass detects other external changes
	}
	r.changedExternally = true
	r.kernel.FlushSets()
	if r.peer != nil {
		r.peer.flush()
	}
	report, err := r.engine.Restore(context.Background())
	if err != nil {
		r.t.Fatalf("restore: %v", err)
	}
	r.changedExternally = false
	r.settle(report)
}

// failKey makes all operations on one virtual server fail for two passes.
func (r *rig) failKey(t *rapid.T) {
	keys := slices.SortedFunc(maps.Keys(r.worlds[len(r.worlds)-1]), kernel.Key.Compare)
	if len(keys) == 0 {
		return
	}
	r.kernel.FailKey(rapid.SampledFrom(keys).Draw(t, "key"))
	r.sync()
	r.sync()
	r.kernel.ClearFaults()
}

// injectFault makes one of the next operations fail.
func (r *rig) injectFault(t *rapid.T) {
	f := rapid.SampledFrom([]fake.Fault{fake.Fail, fake.LoseReply, fake.Crash}).Draw(t, "fault")
	r.kernel.FailAt(rapid.IntRange(0, 12).Draw(t, "operation"), f)
	r.sync()
	if f == fake.Crash {
		r.start()
		return
	}
	r.kernel.ClearFaults()
}

// TestHistories checks the proxier's promise: whatever happens to Services and endpoints, whatever fails, and
// wherever the process crashes, each Service with a usable endpoint is served after every single operation, no
// connection is cut before its drain limit, and in the end the kernel holds exactly the wanted state.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runHistory(t, newRig(t, rapid.Bool().Draw(t, "single")))
	})
}

// runHistory runs a random history with checks after each operation and at the end.
func runHistory(t *rapid.T, r *rig) {
	r.initialServices(t)
	t.Repeat(map[string]func(*rapid.T){
		"change":          r.changeAPI,
		"change more":     r.changeAPI,
		"sync":            func(*rapid.T) { r.sync() },
		"sync more":       func(*rapid.T) { r.sync() },
		"connections":     r.changeConnections,
		"send":            r.sendUDP,
		"drain":           func(t *rapid.T) { r.drain() },
		"restart":         func(*rapid.T) { r.start() },
		"fault":           r.injectFault,
		"external change": r.changeExternally,
		"flush":           func(*rapid.T) { r.flushSets() },
		"fail key":        r.failKey,
		"time passes":     r.advanceTime,
		"reconcile":       func(*rapid.T) { r.full() },
	})
	if cut := r.kernel.CutConnections(); cut != r.expired {
		t.Fatalf("%d connections were cut, %d of them at their drain limit", cut, r.expired)
	}
	r.finish()
}

// finish closes all connections and checks that the kernel then holds exactly the wanted state.
func (r *rig) finish() {
	r.world.hostile = nil
	r.dirty[hostileName] = true
	r.sync()
	r.full()
	for _, k := range r.ownKeys() {
		for _, real := range r.kernel.State().Reals(k) {
			r.kernel.SetConnections(k, real.Addr, 0, 0)
		}
	}
	r.drain()
	want := r.world.contract()
	r.checkConverged(want)
	if n := r.engine.Draining(); n > 0 {
		r.t.Fatalf("%d real servers drain although no connection is left", n)
	}
	if got, all := r.ownKeys(), slices.SortedFunc(maps.Keys(want), kernel.Key.Compare); !slices.Equal(got, all) {
		r.t.Fatalf("virtual servers %v, want %v", got, all)
	}
	addrs := map[netip.Addr]bool{}
	for k, w := range want {
		if w.bound {
			addrs[k.Addr] = true
		}
		for _, real := range r.kernel.State().Reals(k) {
			if !slices.Contains(w.reals, real.Addr) {
				r.t.Fatalf("%v still has %v", k, real)
			}
		}
	}
	if got := r.kernel.State().Addresses(); len(got) != len(addrs) {
		r.t.Fatalf("bound %v, want %v", got, addrs)
	}
	for _, e := range r.kernel.State().Elements() {
		_, wanted := want[e.Key]
		if e.Set == kernel.Isolated {
			wanted = addrs[e.Key.Addr]
		}
		if !wanted && !e.Set.Shared() {
			r.t.Fatalf("element %v remains", e)
		}
	}
	for a := range addrs {
		if !r.kernel.State().Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: a}}) {
			r.t.Fatalf("ports of the host answer at %v", a)
		}
	}
	if ops := len(r.kernel.Ops()); ops > 0 {
		r.full()
		if again := len(r.kernel.Ops()) - ops; again > 0 {
			r.t.Fatalf("a pass over a settled kernel needed %d operations: %v", again, r.kernel.Ops()[ops:])
		}
	}
}
