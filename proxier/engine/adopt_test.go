package engine

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// With Adopt, virtual servers of another proxy are taken over with their connections if Services want them; other
// virtual servers stay unchanged.
func TestAdoptForeignVirtualServers(t *testing.T) {
	for _, adopt := range []bool{true, false} {
		now := time.Unix(0, 0)
		k, w := fake.New(nodeAddrs...), &world{}
		w.services[0] = service{exists: true, pods: [4]podState{absent, absent, ready, absent}}
		old, other := pod(0, 3, 8080), key("10.96.0.250", 80)
		if err := k.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: vip, Scheduler: "wlc"}}, kernel.AddReal{Key: vip, Real: pod0, Weight: 1},
			kernel.AddReal{Key: vip, Real: old, Weight: 1}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: other, Scheduler: "rr"}}); err != nil {
			t.Fatal(err)
		}
		k.SetConnections(vip, pod0, 8, 0)
		k.SetConnections(vip, old, 8, 0)
		e := New(k, w, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Now: func() time.Time { return now }, Adopt: adopt})
		r, err := e.Full(context.Background())
		if err != nil || len(r.Failures) > 0 {
			t.Fatal(err, r.Failures)
		}
		state := k.State()
		recorded := state.Has(kernel.Element{Set: kernel.OffCluster, Key: vip})
		weight, _ := state.Weight(vip, old)
		v, _ := state.Virtual(vip)
		if taken := e.Owns(vip) && recorded && weight == 0 && v.Scheduler == "rr" && state.Bound(vip.Addr); taken != adopt || k.CutConnections() > 0 {
			t.Errorf("adopt %v: taken over: %v (recorded %v, weight of the unwanted real server %d, %s), %d connections cut", adopt, taken, recorded, weight, v.Scheduler, k.CutConnections())
		}
		if refused := len(r.Refused) > 0; refused == adopt {
			t.Errorf("adopt %v: refused %v", adopt, r.Refused)
		}
		if _, exists := state.Virtual(other); !exists || e.Owns(other) {
			t.Errorf("adopt %v: unwanted virtual server exists: %v, owned: %v", adopt, exists, e.Owns(other))
		}
		if flows := e.FlowFilters(); adopt && (len(flows) != 1 || len(flows[0].Keep) != 1 || flows[0].Keep[0] != netip.AddrPort(pod0)) {
			t.Errorf("flows %v", flows)
		}
	}
}

// A virtual server that differs only in its flags, such as kube-proxy's with scheduler sh, is updated in place.
func TestAdoptCorrectsFlags(t *testing.T) {
	k, w := fake.New(nodeAddrs...), &world{}
	w.services[0] = service{exists: true, pods: [4]podState{absent, absent, ready, absent}}
	wanted := kernel.Virtual{Key: vip, Scheduler: "sh"}
	theirs := wanted
	theirs.ForeignFlags = true
	if err := k.ApplyExternally(kernel.AddVirtual{Virtual: theirs}, kernel.AddReal{Key: vip, Real: pod0, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	k.SetConnections(vip, pod0, 8, 0)
	e := New(k, w, Options{Desired: desired.Options{Node: node, Scheduler: "sh"}, Drain: limits, Adopt: true})
	if r, err := e.Full(context.Background()); err != nil || len(r.Failures) > 0 {
		t.Fatal(err, r.Failures)
	}
	if v, _ := k.State().Virtual(vip); v != wanted || k.CutConnections() > 0 {
		t.Errorf("foreign flags: %v; %d connections were cut", v.ForeignFlags, k.CutConnections())
	}
}
