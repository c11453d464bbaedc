package engine

import (
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// kubernetes#117205: a pod that becomes ready again keeps its connections, since only its weight changes.
func TestReadinessFlapChangesOnlyTheWeight(t *testing.T) {
	b := newFixture(t)
	b.newOps()
	b.kernel.SetConnections(vip, pod0, 8, 0)
	for range 200 {
		b.setPods(unready, absent)
		b.drain()
		r := b.setPods(ready, absent)
		if r.Cancelled != 1 || len(r.Changes) != 1 || r.Changes[0].Kind != Restored {
			t.Fatalf("after becoming ready again: %+v", r)
		}
		b.expectOps("one flap", "set-weight VIP 10.244.2.2:8080 weight 0", "set-weight VIP 10.244.2.2:8080 weight 1")
	}
	b.now = b.now.Add(24 * time.Hour)
	b.drain()
	b.expectOps("no operation after the flaps")
	if b.kernel.CutConnections() > 0 {
		t.Errorf("%d connections were cut", b.kernel.CutConnections())
	}
}

func TestDrain(t *testing.T) {
	weight0, deleted := "set-weight VIP 10.244.2.2:8080 weight 0", "delete-real VIP 10.244.2.2:8080"
	added := "add-real VIP 10.244.2.3:8080 weight 1"
	for _, test := range []struct {
		name  string
		state podState
		after time.Duration
		conns int
		want  []string
		what  ChangeKind
	}{
		{"no connection", draining, 0, 0, []string{deleted}, Deleted},
		{"still serving", draining, 24 * time.Hour, 1, []string{}, ""},
		{"unready, not terminating", unready, 24 * time.Hour, 1, []string{}, ""},
		{"terminated, before the limit", dying, 15*time.Minute - 1, 1, []string{}, ""},
		{"terminated, at the limit", dying, 15 * time.Minute, 1, []string{deleted}, Expired},
		{"unlisted, before the limit", absent, 5*time.Minute - 1, 1, []string{}, ""},
		{"unlisted, at the limit", absent, 5 * time.Minute, 1, []string{deleted}, Expired},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFixture(t)
			b.newOps()
			b.kernel.SetConnections(vip, pod0, test.conns, 0)
			b.setPods(test.state, ready)
			b.expectOps("another pod is ready", added, weight0)
			b.now = b.now.Add(test.after)
			r := b.drain()
			b.expectOps("later", test.want...)
			if len(test.want) > 0 && (len(r.Changes) != 1 || r.Changes[0].Kind != test.what || r.Changes[0].Service != name(0)) {
				t.Errorf("changes %+v, want one of kind %s", r.Changes, test.what)
			}
			if left := b.engine.Draining(); left != 1-len(test.want) {
				t.Errorf("%d real servers drain", left)
			}
		})
	}
}

// A draining real server to which another program gave a weight takes connections, so it is not deleted, idle or not.
func TestDrainKeepsRealServerWithWeight(t *testing.T) {
	b := newFixture(t)
	b.setPods(draining, ready)
	b.newOps()
	if err := b.kernel.ApplyExternally(kernel.SetWeight{Key: vip, Real: pod0, Weight: 5}); err != nil {
		t.Fatal(err)
	}
	b.drain()
	b.expectOps("first check", "set-weight VIP 10.244.2.2:8080 weight 0")
	b.drain()
	b.expectOps("second check", "delete-real VIP 10.244.2.2:8080")
}

func TestDeletedServiceStaysUntilConnectionsEnd(t *testing.T) {
	b := newFixture(t)
	b.newOps()
	b.kernel.SetConnections(vip, pod0, 1, 0)
	b.world.services[0].exists = false
	b.setPods(ready, absent)
	b.expectOps("deleted", "set-weight VIP 10.244.2.2:8080 weight 0")
	b.restart()
	b.expectOps("restart")
	b.kernel.SetConnections(vip, pod0, 0, 1)
	b.drain()
	b.expectOps("with a connection in TIME_WAIT")
	b.kernel.SetConnections(vip, pod0, 0, 0)
	r := b.drain()
	b.expectOps("after the last connection", "delete-real VIP 10.244.2.2:8080", "delete-virtual VIP", "unbind 10.96.0.10", "change-sets -isolated:10.96.0.10 -off-cluster:VIP")
	if b.engine.Draining()+b.engine.Size() > 0 || b.engine.Pending() || len(r.Failures) > 0 {
		t.Errorf("something remains: %+v", r)
	}
}

// A remote pod that could not be drained stays masqueraded, since its replies would bypass the node.
func TestFailedDrainKeepsMasquerading(t *testing.T) {
	b := newFixture(t)
	b.world.services[0].loadBalancer = true
	b.setPods(ready, absent)
	b.world.services[0].externalLocal = true
	b.kernel.FailAt(1, fake.Fail) // the weight; operation 0 changes sets
	r := b.setPods(ready, absent)
	external := kernel.Key{Addr: externIP(0), Protocol: kernel.TCP, Port: 80}
	masqueraded := func() bool { return b.kernel.State().Has(kernel.Element{Set: kernel.Masquerade, Key: external}) }
	if len(r.Failures) != 1 || len(serving(b.kernel.State(), external)) != 1 || !masqueraded() {
		t.Errorf("failures %v, served by %v, masqueraded: %v", r.Failures, serving(b.kernel.State(), external), masqueraded())
	}
	b.setPods(ready, absent)
	if len(serving(b.kernel.State(), external)) != 0 || masqueraded() {
		t.Error("the second pass did not repair it")
	}
}
