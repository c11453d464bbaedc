package engine

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// A permanently rejected operation of one Service is reported once, is no failure after three passes, does not affect
// other Services, is retried, and is reported again if it recurs.
func TestPermanentlyRejectedOperations(t *testing.T) {
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
			b := newFixture(t)
			b.world.services[1] = all()
			names := []types.NamespacedName{name(1)}
			changed := all()
			if test.change(&changed); changed != all() {
				b.mustReport(b.engine.Sync(context.Background(), names))
				b.world.services[1] = changed
			}
			reject := func(op kernel.Op) error {
				k, s, _ := operandOf(op)
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
			checkReported := func(when string) {
				t.Helper()
				var refused []desired.Refusal
				for range 4 {
					r := b.mustReport(b.engine.Sync(context.Background(), names))
					names = nil
					refused = append(refused, r.Refused...)
				}
				b.world.services[2] = all()
				r := b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(2), name(1)}))
				if refused = append(refused, r.Refused...); len(refused) != 1 || refused[0].Reason != desired.KernelRefused || refused[0].Service != name(1) {
					t.Errorf("%s: reported %v", when, refused)
				}
				if len(r.Failures) > 0 || b.engine.Pending() || !b.engine.HasRejected() || r.Rejected == 0 {
					t.Errorf("%s: failures %v, pending %v, rejected waiting %v, rejected %d", when, r.Failures, b.engine.Pending(), b.engine.HasRejected(), r.Rejected)
				}
				if r = b.mustReport(b.engine.Full(context.Background())); len(r.Repairs)+len(r.Refused) > 0 {
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
			checkReported("first rejection")
			b.kernel.ClearFaults()
			r := b.mustReport(b.engine.Sync(context.Background(), nil))
			if r.Operations == 0 || len(r.Failures) > 0 || b.engine.Pending() || b.engine.HasRejected() {
				t.Errorf("after the kernel accepted it: %+v, pending %v, rejected waiting %v", r, b.engine.Pending(), b.engine.HasRejected())
			}
			before := len(b.kernel.Ops())
			if b.mustReport(b.engine.Full(context.Background())); len(b.kernel.Ops()) != before {
				t.Errorf("a further pass needed %v", b.kernel.Ops()[before:])
			}
			if test.op == "update-virtual" || test.op == "set-weight" {
				return // creating the Service again would succeed without them
			}
			b.world.services[1].exists = false
			b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
			b.drain()
			b.world.services[1] = all()
			names = []types.NamespacedName{name(1)}
			b.kernel.RejectWith(reject)
			checkReported("recurrence")
			b.world.services[1].exists = false
			b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
			if b.engine.HasRejected() || b.engine.Pending() || len(b.engine.rejections) > 0 {
				t.Errorf("after the Service was deleted: rejected waiting %v, pending %v", b.engine.HasRejected(), b.engine.Pending())
			}
		})
	}
}

// A device whose IPv6 is disabled rejects IPv6 addresses with EACCES. The other family is served, and nothing is
// pending. For IPv4 the same error is no rejection.
func TestAddressesOfDisabledFamily(t *testing.T) {
	for _, six := range []bool{true, false} {
		k, w := fake.New(nodeAddrs...), &world{}
		w.services[0] = service{exists: true, dualStack: true, pods: [4]podState{2: ready}}
		k.RejectWith(func(op kernel.Op) error {
			if o, bind := op.(kernel.Bind); bind && o.Addr.Is6() == six {
				return syscall.EACCES
			}
			return nil
		})
		e := New(k, w, Options{Desired: desired.Options{Node: node, Scheduler: "rr", IPv6: true}, Drain: limits})
		r, err := e.Full(context.Background())
		refused := r.Refused
		for range RejectionThreshold {
			if err != nil {
				t.Fatal(err)
			}
			r, err = e.Sync(context.Background(), nil)
			refused = append(refused, r.Refused...)
		}
		reported := len(refused) == 1 && refused[0].Reason == desired.KernelRefused
		if rejected := reported && len(r.Failures) == 0 && !e.Pending(); rejected != six {
			t.Errorf("IPv6 %v: refused %v, failures %v, pending %v", six, refused, r.Failures, e.Pending())
		}
		other := clusterIP6(0)
		if six {
			other = clusterIP(0)
		}
		if !k.State().Bound(other) || len(serving(k.State(), key(other.String(), 80))) != 1 {
			t.Errorf("IPv6 %v is rejected: the other family is not served", six)
		}
	}
}

// If the kernel rejects everything, the cause is not one object, and the proxier reports pending work.
func TestKernelRejectsEverything(t *testing.T) {
	for _, op := range []string{"add-virtual", "add-real", "change-sets"} {
		b := &fixture{T: t, world: &world{}}
		b.world.services[0] = service{exists: true, pods: [4]podState{2: ready}}
		b.kernel = newFixture(t).kernel
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
			b.mustReport(b.engine.Sync(context.Background(), nil))
		}
		if !b.engine.Pending() {
			t.Errorf("the kernel rejects every %s, but nothing is pending", op)
		}
	}
}
