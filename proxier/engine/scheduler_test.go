package engine

import (
	"context"
	"syscall"
	"testing"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// requestScheduler changes the scheduler annotation of the Service.
func (b *fixture) requestScheduler(scheduler int) Report {
	b.Helper()
	b.world.services[0].scheduler = scheduler
	return b.mustReport(b.engine.Sync(context.Background(), b.world.Names()))
}

func TestSchedulerIsUpdatedInPlace(t *testing.T) {
	b := newFixture(t)
	b.newOps()
	b.requestScheduler(1)
	b.expectOps("another scheduler", "update-virtual VIP")
	if v, _ := b.kernel.State().Virtual(vip); v.Scheduler != "wrr" {
		t.Errorf("scheduler %s, want wrr", v.Scheduler)
	}
	b.requestScheduler(0)
	b.expectOps("back to the node's scheduler", "update-virtual VIP")
}

// A Service that requests a missing scheduler uses the node's, which is reported once. The next full pass finds a
// scheduler that was loaded meanwhile.
func TestMissingScheduler(t *testing.T) {
	b := newFixture(t)
	b.newOps()
	b.kernel.SetSchedulerMissing("wrr", true)
	if r := b.requestScheduler(1); len(r.Refused) != 1 || r.Refused[0].Reason != desired.BadScheduler {
		t.Errorf("refused %v, want one of reason bad-scheduler", r.Refused)
	}
	if r := b.mustReport(b.engine.Full(context.Background())); len(r.Refused) != 0 {
		t.Errorf("refused again: %v", r.Refused)
	}
	b.expectOps("the node's scheduler stays")
	b.kernel.SetSchedulerMissing("wrr", false)
	b.requestScheduler(1)
	b.expectOps("no new check before a full pass")
	b.mustReport(b.engine.Full(context.Background()))
	b.expectOps("after the module was loaded", "update-virtual VIP")
}

// busyProbes is a kernel that answers a check of a scheduler with an error, if set.
type busyProbes struct {
	kernel.Kernel
	err    error
	probes int
}

func (p *busyProbes) Scheduler(name string) error {
	if p.probes++; p.err != nil {
		return p.err
	}
	return p.Kernel.Scheduler(name)
}

// A check of a scheduler that fails says nothing about the scheduler. The Services that request it keep theirs, and the
// check is repeated by the next pass of either kind, once for all Services.
func TestFailedSchedulerCheck(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, missing := range []bool{false, true} {
			b := newFixture(t)
			b.world.services[1] = service{exists: true, scheduler: 1, pods: [4]podState{2: ready}}
			b.requestScheduler(1)
			b.restart()
			b.newOps()
			k := &busyProbes{Kernel: b.kernel, err: syscall.ENOMEM}
			b.engine.kernel, b.engine.probedSchedulers = k, map[string]bool{}
			pass := func() Report {
				if full {
					return b.mustReport(b.engine.Full(context.Background()))
				}
				return b.mustReport(b.engine.Sync(context.Background(), nil))
			}
			for range 2 {
				k.probes = 0
				if r := b.requestScheduler(1); len(r.Failures) != 1 || len(r.Refused) > 0 || k.probes != 1 {
					t.Errorf("full %v: failures %v, refused %v, %d checks", full, r.Failures, r.Refused, k.probes)
				}
				b.expectOps("failed check")
			}
			k.err = nil
			b.kernel.SetSchedulerMissing("wrr", missing)
			if r := pass(); len(r.Failures) > 0 || len(r.Refused) == 2 != missing {
				t.Errorf("full %v, missing %v: failures %v, refused %v", full, missing, r.Failures, r.Refused)
			}
			v, _ := b.kernel.State().Virtual(vip)
			if v.Scheduler == "rr" != missing {
				t.Errorf("full %v, missing %v: scheduler %s", full, missing, v.Scheduler)
			}
			k.probes = 0
			if b.requestScheduler(1); k.probes > 0 {
				t.Errorf("full %v, missing %v: checked again", full, missing)
			}
		}
	}
}
