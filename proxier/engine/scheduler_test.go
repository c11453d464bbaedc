package engine

import (
	"context"
	"testing"

	"github.com/hitless/hitless/proxier/desired"
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
