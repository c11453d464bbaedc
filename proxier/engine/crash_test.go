package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// lifecycle is a history that contains every kind of operation.
var lifecycle = []struct {
	what   string
	change func(w *world)
}{
	{"a Service with two local pods", func(w *world) {
		w.services[0] = service{exists: true, loadBalancer: true, udpPort: true, pods: [4]podState{ready, ready}}
	}},
	{"another with the shared external IP and NodePorts", func(w *world) {
		w.services[1] = service{exists: true, shared: true, nodePort: true, dualStack: true, pods: [4]podState{ready, absent, ready}}
	}},
	{"a rollout begins", func(w *world) { w.services[0].pods = [4]podState{draining, ready, ready} }},
	{"the rollout ends", func(w *world) { w.services[0].pods = [4]podState{absent, absent, ready, ready} }},
	{"policy Local without a local pod", func(w *world) { w.services[0].externalLocal = true }},
	{"a local pod", func(w *world) { w.services[0].pods[0] = ready }},
	{"the pod becomes unready", func(w *world) { w.services[0].pods[0] = unready }},
	{"the pod becomes ready", func(w *world) { w.services[0].pods[0] = ready }},
	{"clients restricted", func(w *world) { w.services[0].clients = 1 }},
	{"other clients allowed", func(w *world) { w.services[0].clients = 2 }},
	{"another scheduler", func(w *world) { w.services[0].scheduler = 1 }},
	{"a second port", func(w *world) { w.services[1].secondPort = true }},
	{"an older Service claims the shared address", func(w *world) { w.services[2] = service{exists: true, shared: true, pods: [4]podState{ready}} }},
	{"the node's address changes", func(w *world) { w.address = 1 }},
	{"one Service deleted", func(w *world) { w.services[1] = service{} }},
	{"all Services deleted", func(w *world) { w.services = [3]service{} }},
}

// runLifecycle runs the lifecycle with open connections and returns the number of operations.
func (r *rig) runLifecycle() int {
	for _, step := range lifecycle {
		step.change(r.world)
		for i := range r.world.services {
			r.dirty[name(i)] = true
		}
		r.recordWorld()
		r.syncOrRestart()
		for _, k := range r.ownKeys() {
			for _, real := range r.kernel.State().Reals(k) {
				if k.Protocol.Drains() && real.Weight > 0 {
					r.kernel.SetConnections(k, real.Addr, 1, 1)
				}
			}
		}
		r.now = r.now.Add(time.Second)
	}
	for _, k := range r.ownKeys() {
		for _, real := range r.kernel.State().Reals(k) {
			r.kernel.SetConnections(k, real.Addr, 0, 0)
		}
	}
	r.drain()
	r.syncOrRestart()
	return len(r.kernel.Ops())
}

// syncOrRestart synchronises; after a crash it starts a new process.
func (r *rig) syncOrRestart() {
	r.sync()
	if _, err := r.kernel.Servers(); err != nil {
		r.start()
	}
}

// The process crashes at each operation of the lifecycle in turn. Every Service is served after every other
// operation, no connection is cut, and in the end the kernel holds exactly the wanted state. TestHistories covers
// other faults.
func TestCrashAtEveryOperation(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single %v", single), func(t *testing.T) { crashAtEveryOperation(t, single) })
	}
}

func crashAtEveryOperation(t *testing.T, single bool) {
	all := newRig(t, single)
	n := all.runLifecycle()
	t.Logf("%d operations", n)
	if n < 60 {
		t.Errorf("the lifecycle took %d operations, want at least 60", n)
	}
	kinds := map[string]bool{}
	for _, op := range all.kernel.Ops() {
		kinds[op.Name()] = true
	}
	for _, op := range []kernel.Op{kernel.AddVirtual{}, kernel.UpdateVirtual{}, kernel.DeleteVirtual{}, kernel.AddReal{}, kernel.SetWeight{}, kernel.DeleteReal{},
		kernel.Bind{}, kernel.Unbind{}, kernel.ChangeSets{}} {
		if !kinds[op.Name()] {
			t.Errorf("no %s in the lifecycle", op.Name())
		}
	}
	for i := range n {
		t.Run(fmt.Sprintf("operation %d", i), func(t *testing.T) {
			r := newRig(t, single)
			r.kernel.FailAt(i, fake.Crash)
			r.runLifecycle()
			if cut := r.kernel.CutConnections(); cut > 0 {
				t.Errorf("%d connections were cut", cut)
			}
			r.finish()
		})
	}
}
