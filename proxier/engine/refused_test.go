package engine

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// Whatever the kernel refuses of one Service for good, it is told once, is no failure any more after three passes, keeps nobody else
// from being served, is tried again, and is told anew when it comes back.
func TestWhatTheKernelRefusesForGood(t *testing.T) {
	bad := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
	all := func() service { return service{exists: true, pods: [4]podState{2: ready, 3: ready}} }
	for _, test := range []struct {
		op     string
		change func(*service)
	}{
		{"add-virtual", func(*service) {}},
		{"add-real", func(*service) {}},
		{"bind", func(*service) {}},
		{"change-sets", func(*service) {}},
		{"update-virtual", func(s *service) { s.scheduler = 1 }},
		{"set-weight", func(s *service) { s.pods[2] = draining }},
	} {
		t.Run(test.op, func(t *testing.T) {
			b := newBench(t)
			b.world.services[1] = all()
			names := []types.NamespacedName{name(1)}
			changed := all()
			if test.change(&changed); changed != all() {
				b.report(b.engine.Sync(context.Background(), names))
				b.world.services[1] = changed
			}
			reject := func(op kernel.Op) error {
				k, s, _ := about(op)
				if sets, is := op.(kernel.ChangeSets); is && slices.ContainsFunc(sets.Add, func(e kernel.Element) bool { return e.Key == bad }) {
					k = bad
				} else if is {
					return nil
				}
				if s.real != pod(1, 3, 8080) && k.Addr == bad.Addr && op.Name() == test.op {
					return syscall.EINVAL
				}
				return nil
			}
			told := func(when string) {
				t.Helper()
				var refused []desired.Refusal
				for range 4 {
					r := b.report(b.engine.Sync(context.Background(), names))
					names = nil
					refused = append(refused, r.Refused...)
				}
				b.world.services[2] = all()
				r := b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(2), name(1)}))
				if refused = append(refused, r.Refused...); len(refused) != 1 || refused[0].Reason != desired.KernelRefused || refused[0].Service != name(1) {
					t.Errorf("%s: told %v", when, refused)
				}
				if len(r.Failures) > 0 || b.engine.Pending() || !b.engine.Waits() || r.Again == 0 {
					t.Errorf("%s: failures %v, pending %v, waits %v, tried again %d", when, r.Failures, b.engine.Pending(), b.engine.Waits(), r.Again)
				}
				if r = b.report(b.engine.Full(context.Background())); len(r.Repairs)+len(r.Refused) > 0 {
					t.Errorf("%s: the next reconciliation repairs %v, refuses %v", when, r.Repairs, r.Refused)
				}
				if got := serving(b.kernel.State(), kernel.Key{Addr: clusterIP(2), Protocol: kernel.TCP, Port: 80}); len(got) != 2 {
					t.Errorf("%s: another Service is served by %v", when, got)
				}
				if test.op == "add-real" {
					if got := serving(b.kernel.State(), bad); len(got) != 1 || got[0] != pod(1, 3, 8080) {
						t.Errorf("%s: the other endpoint does not serve: %v", when, got)
					}
				}
			}
			b.kernel.RejectWith(reject)
			told("first")
			b.kernel.ClearFaults()
			r := b.report(b.engine.Sync(context.Background(), nil))
			if r.Operations == 0 || len(r.Failures) > 0 || b.engine.Pending() || b.engine.Waits() {
				t.Errorf("after the kernel came round: %+v, pending %v, waits %v", r, b.engine.Pending(), b.engine.Waits())
			}
			before := len(b.kernel.Ops())
			if b.report(b.engine.Full(context.Background())); len(b.kernel.Ops()) != before {
				t.Errorf("and then there was more to do: %v", b.kernel.Ops()[before:])
			}
			if test.op == "update-virtual" || test.op == "set-weight" {
				return // what they need first would have to be undone
			}
			b.world.services[1].exists = false
			b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
			b.drain()
			b.world.services[1] = all()
			names = []types.NamespacedName{name(1)}
			b.kernel.RejectWith(reject)
			told("when it came back")
			b.world.services[1].exists = false
			b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
			if b.engine.Waits() || b.engine.Pending() || len(b.engine.refusing) > 0 {
				t.Errorf("the Service is gone; waits %v, pending %v", b.engine.Waits(), b.engine.Pending())
			}
		})
	}
}

// A kernel that refuses everything is no matter of one object: the proxier does not say that all is done.
func TestKernelThatRefusesEverything(t *testing.T) {
	for _, op := range []string{"add-virtual", "add-real", "change-sets"} {
		b := &bench{T: t, world: &world{}}
		b.world.services[0] = service{exists: true, pods: [4]podState{2: ready}}
		b.kernel = newBench(t).kernel
		if err := b.kernel.ApplyExternally(kernel.DeleteVirtual{Key: vip}, kernel.Unbind{Addr: vip.Addr}); err != nil {
			t.Fatal(err)
		}
		b.kernel.FlushSets()
		b.kernel.RejectWith(func(o kernel.Op) error {
			if o.Name() == op {
				return syscall.EINVAL
			}
			return nil
		})
		b.restart()
		for range 5 {
			b.report(b.engine.Sync(context.Background(), nil))
		}
		if !b.engine.Pending() {
			t.Errorf("the kernel refuses each %s, and nothing is pending", op)
		}
	}
}
