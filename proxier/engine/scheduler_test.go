package engine

import (
	"context"
	"testing"

	"github.com/hitless/hitless/proxier/desired"
)

// askFor changes the scheduler that the Service asks for.
func (b *bench) askFor(scheduler int) Report {
	b.Helper()
	b.world.services[0].scheduler = scheduler
	return b.report(b.engine.Sync(context.Background(), b.world.Names()))
}

func TestSchedulerIsChangedInPlace(t *testing.T) {
	b := newBench(t)
	b.ops()
	b.askFor(1)
	b.did("another scheduler", "update-virtual VIP")
	if v, _ := b.kernel.State().Virtual(vip); v.Scheduler != "wrr" {
		t.Errorf("it has %s", v.Scheduler)
	}
	b.askFor(0)
	b.did("the node's again", "update-virtual VIP")
}

// A Service whose scheduler this kernel does not have is served by the node's, which is said once; when the module has come,
// the next full pass finds it.
func TestSchedulerThatTheKernelLacks(t *testing.T) {
	b := newBench(t)
	b.ops()
	b.kernel.SetSchedulerMissing("wrr", true)
	if r := b.askFor(1); len(r.Refused) != 1 || r.Refused[0].Reason != desired.BadScheduler {
		t.Errorf("refused %v, want the scheduler", r.Refused)
	}
	if r := b.report(b.engine.Full(context.Background())); len(r.Refused) != 0 {
		t.Errorf("refused again: %v", r.Refused)
	}
	b.did("it keeps the node's")
	b.kernel.SetSchedulerMissing("wrr", false)
	b.askFor(1)
	b.did("nobody has looked again yet")
	b.report(b.engine.Full(context.Background()))
	b.did("the module has come", "update-virtual VIP")
}
