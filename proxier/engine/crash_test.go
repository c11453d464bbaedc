package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// life is a history in which everything happens once that needs an operation of its own.
var life = []struct {
	what   string
	change func(w *world)
}{
	{"a Service of two local pods", func(w *world) {
		w.services[0] = service{exists: true, balanced: true, udpPort: true, pods: [4]podState{ready, ready}}
	}},
	{"another, with an address of its own and NodePorts", func(w *world) {
		w.services[1] = service{exists: true, shared: true, nodePort: true, dual: true, pods: [4]podState{ready, absent, ready}}
	}},
	{"a rollout begins", func(w *world) { w.services[0].pods = [4]podState{draining, ready, ready} }},
	{"and ends", func(w *world) { w.services[0].pods = [4]podState{absent, absent, ready, ready} }},
	{"policy Local without a pod here", func(w *world) { w.services[0].localOut = true }},
	{"a pod comes here", func(w *world) { w.services[0].pods[0] = ready }},
	{"it is not ready for a moment", func(w *world) { w.services[0].pods[0] = unready }},
	{"and is again", func(w *world) { w.services[0].pods[0] = ready }},
	{"not everybody may come", func(w *world) { w.services[0].clients = 1 }},
	{"others may come", func(w *world) { w.services[0].clients = 2 }},
	{"another scheduler", func(w *world) { w.services[0].scheduler = 1 }},
	{"a second port", func(w *world) { w.services[1].secondPort = true }},
	{"an older Service takes the shared address", func(w *world) { w.services[2] = service{exists: true, shared: true, pods: [4]podState{ready}} }},
	{"the node's address changes", func(w *world) { w.address = 1 }},
	{"one Service goes", func(w *world) { w.services[1] = service{} }},
	{"all go", func(w *world) { w.services = [3]service{} }},
}

// live goes through the whole life with open connections, and returns how many operations that took.
func (r *rig) live() int {
	for _, step := range life {
		step.change(r.world)
		for i := range r.world.services {
			r.dirty[name(i)] = true
		}
		r.enter()
		r.pass()
		for _, k := range r.ours() {
			for _, real := range r.kernel.State().Reals(k) {
				if k.Protocol.Drains() && real.Weight > 0 {
					r.kernel.SetConnections(k, real.Addr, 1, 1)
				}
			}
		}
		r.now = r.now.Add(time.Second)
	}
	for _, k := range r.ours() {
		for _, real := range r.kernel.State().Reals(k) {
			r.kernel.SetConnections(k, real.Addr, 0, 0)
		}
	}
	r.drain()
	r.pass()
	return len(r.kernel.Ops())
}

// pass is a sync; a process that died in it starts anew.
func (r *rig) pass() {
	r.sync()
	if _, err := r.kernel.Servers(); err != nil {
		r.start()
	}
}

// Whichever operation of a life is the process's last: when it starts anew, each Service is served after each other one, no
// connection is cut, and in the end the kernel holds what is wanted and nothing more. Other faults are TestHistories'.
func TestDeathAtEveryOperation(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single %v", single), func(t *testing.T) { deathAtEveryOperation(t, single) })
	}
}

func deathAtEveryOperation(t *testing.T, single bool) {
	all := newRig(t, single)
	n := all.live()
	t.Logf("%d operations", n)
	if n < 60 {
		t.Errorf("the life took %d operations; it is not what it was", n)
	}
	kinds := map[string]bool{}
	for _, op := range all.kernel.Ops() {
		kinds[op.Name()] = true
	}
	for _, op := range []kernel.Op{kernel.AddVirtual{}, kernel.UpdateVirtual{}, kernel.DeleteVirtual{}, kernel.AddReal{}, kernel.SetWeight{}, kernel.DeleteReal{},
		kernel.Bind{}, kernel.Unbind{}, kernel.ChangeSets{}} {
		if !kinds[op.Name()] {
			t.Errorf("no %s in the life", op.Name())
		}
	}
	for i := range n {
		t.Run(fmt.Sprintf("operation %d", i), func(t *testing.T) {
			r := newRig(t, single)
			r.kernel.FailAt(i, fake.Crash)
			r.live()
			if cut := r.kernel.CutConnections(); cut > 0 {
				t.Errorf("%d connections were cut", cut)
			}
			r.finish()
		})
	}
}
