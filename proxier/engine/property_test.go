package engine

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// failer is a *testing.T or a *rapid.T.
type failer interface{ Fatalf(string, ...any) }

// rig drives an engine on a fake kernel, and judges the kernel after every single operation.
type rig struct {
	t      failer
	world  *world
	kernel *fake.Kernel
	single bool // the engine knows no more than kernel.Kernel of it
	other  twin // nil for none
	engine *Engine
	now    time.Time

	dirty  map[types.NamespacedName]bool
	worlds []map[kernel.Key]expectation // since the kernel last agreed with the API; the last one is now
	claims []map[kernel.Key]bool        // of the hostile Service, in the same worlds
	blind  bool                         // others changed the kernel: no promise until it was read again
	lost   bool                         // the record was wiped out, and the proxier has not put it back

	known          func()                  // notes what the proxier was last told of endpoints
	listed, served map[drain.Key]time.Time // when it last knew an endpoint as listed, and as one that serves
	deleted        []kernel.DeleteReal     // by the drain that goes on
	expired        int                     // connections that were cut because their time was up
}

// twin is another kernel, to which all happens that happens to the fake. The engine sees it in the fake's place.
type twin interface {
	kernel.Kernel
	// do changes it behind the engine's back.
	do(...kernel.Op)
	// flush empties its filter sets, and takes them away.
	flush()
	// agree checks that it holds what the fake does.
	agree()
}

var limits = drain.Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute}

// strangers are virtual servers of somebody else, which must never change.
var strangers = []kernel.Op{
	kernel.AddVirtual{Virtual: kernel.Virtual{Key: key("10.96.0.10", 443), Scheduler: "lc"}},
	kernel.AddReal{Key: key("10.96.0.10", 443), Real: netip.MustParseAddrPort("192.168.7.7:443"), Weight: 7},
	kernel.AddVirtual{Virtual: kernel.Virtual{Key: key("192.168.1.1", 80), Scheduler: "sh"}},
}

func key(addr string, port uint16) kernel.Key {
	return kernel.Key{Addr: netip.MustParseAddr(addr), Protocol: kernel.TCP, Port: port}
}

func newRig(t failer, single bool) *rig {
	return newRigOn(t, single, fake.New(nodeAddrs...), nil)
}

func newRigOn(t failer, single bool, k *fake.Kernel, other twin) *rig {
	r := &rig{t: t, single: single, world: &world{}, kernel: k, other: other, now: time.Unix(0, 0),
		dirty: map[types.NamespacedName]bool{}, listed: map[drain.Key]time.Time{}, served: map[drain.Key]time.Time{}}
	r.do(strangers...)
	r.enter()
	r.kernel.OnApply(r.judge)
	r.start()
	return r
}

// start is the start of the process: a new engine that knows nothing. One who wipes out the record together with the proxier's memory
// has made our virtual servers his own; so the old process has put the record back before it ends.
func (r *rig) start() {
	r.kernel.ClearFaults()
	if r.lost {
		r.full()
	}
	var k kernel.Kernel = r.kernel
	if r.other != nil {
		k = r.other
	}
	if r.single {
		k = struct{ kernel.Kernel }{k}
	}
	r.engine = New(k, r.world, Options{
		Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true, IPv6: true},
		Drain:   limits, Now: func() time.Time { return r.now },
	})
	r.full()
}

// do changes the kernel behind the engine's back.
func (r *rig) do(ops ...kernel.Op) {
	if err := r.kernel.ApplyExternally(ops...); err != nil {
		r.t.Fatalf("%v", err)
	}
	if r.other != nil {
		r.other.do(ops...)
	}
}

// enter notes the world that the API now tells of.
func (r *rig) enter() {
	r.worlds = append(r.worlds, r.world.contract())
	r.claims = append(r.claims, r.world.claims())
}

// learn notes that the proxier was told of all that the API tells now.
func (r *rig) learn() {
	clear(r.dirty)
	world, claims := r.worlds[len(r.worlds)-1], r.claims[len(r.claims)-1]
	r.known = func() {
		for k, e := range world {
			for real, serves := range e.listed {
				at := drain.Key{Virtual: k, Real: real}
				if r.listed[at] = r.now; serves {
					r.served[at] = r.now
				}
			}
		}
		for k := range claims {
			at := drain.Key{Virtual: k, Real: goodEndpoint}
			r.listed[at], r.served[at] = r.now, r.now
		}
	}
	r.known()
}

// age lets time pass, and now and then so much that what drains has had its time.
func (r *rig) age(t *rapid.T) {
	r.now = r.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 6 * time.Minute, 20 * time.Minute}).Draw(t, "time"))
	r.known()
}

func (r *rig) full() {
	report, err := r.engine.Full(context.Background())
	if err != nil {
		return // the kernel died under it
	}
	r.learn()
	r.blind, r.lost = false, false
	r.settle(report)
}

func (r *rig) sync() {
	names := slices.SortedFunc(maps.Keys(r.dirty), func(a, b types.NamespacedName) int { return len(a.Name) - len(b.Name) })
	r.learn()
	report, err := r.engine.Sync(context.Background(), names)
	if err != nil {
		r.t.Fatalf("sync: %v", err)
	}
	r.settle(report)
}

// settle checks that the kernel holds the contract once a pass had no failure.
func (r *rig) settle(report Report) {
	if r.other != nil {
		r.other.agree()
	}
	if len(report.Failures) > 0 || r.blind {
		if len(report.Failures) > 0 && !r.engine.Pending() && len(r.engine.suspect.keys) == 0 {
			r.t.Fatalf("failures %v, but nothing is pending", report.Failures)
		}
		return
	}
	if len(r.dirty) > 0 {
		return
	}
	now := r.worlds[len(r.worlds)-1]
	r.worlds, r.claims = r.worlds[len(r.worlds)-1:], r.claims[len(r.claims)-1:]
	r.converged(now)
}

func (r *rig) converged(want map[kernel.Key]expectation) {
	state := r.kernel.State()
	for k, w := range want {
		if got := serving(state, k); !slices.Equal(got, w.reals) {
			r.t.Fatalf("%v is served by %v, want %v", k, got, w.reals)
		}
		if v, exists := state.Virtual(k); !exists || state.Bound(k.Addr) != w.bound || v.Scheduler != w.sched {
			r.t.Fatalf("%v: virtual server %v with scheduler %s, want %s; address bound %v", k, exists, v.Scheduler, w.sched, state.Bound(k.Addr))
		}
		r.clients(k, w.from)
		for _, set := range kernel.Sets() {
			if wanted := set == w.source || set == kernel.Drop && w.drop || set == kernel.Restricted && w.from != nil; set.PerServer() &&
				state.Has(kernel.Element{Set: set, Key: k}) != wanted {
				r.t.Fatalf("%v in set %s: want %v", k, set, wanted)
			}
		}
	}
	r.strangersUntouched()
	r.hairpins()
	r.healthPorts()
	r.senders(want)
	for _, k := range r.ours() {
		if _, wanted := want[k]; !wanted && !hostileMayHave(k) && len(serving(state, k)) > 0 {
			r.t.Fatalf("%v is not wanted and served by %v", k, serving(state, k))
		}
	}
}

// clients checks that those who may come, and nobody else, are allowed.
func (r *rig) clients(k kernel.Key, want []string) {
	var got []string
	for _, p := range r.kernel.State().Sources(k) {
		got = append(got, p.String())
	}
	slices.Sort(got)
	if want = slices.Clone(want); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		r.t.Fatalf("%v is open to %v, want %v", k, got, want)
	}
}

// hairpins checks that the pods of this node, and no others, are masqueraded when they reach themselves.
func (r *rig) hairpins() {
	for i, s := range r.world.services {
		for p, state := range s.pods {
			e := kernel.Element{Set: kernel.Hairpin, Key: kernel.Key{Addr: pod(i, p, 0).Addr()}}
			want := s.exists && local(p) && state != absent
			if r.kernel.State().Has(e) != want {
				r.t.Fatalf("%v: want %v", e, want)
			}
			e.Key.Addr = six(pod(i, p, 0)).Addr()
			if want = want && s.dual; r.kernel.State().Has(e) != want {
				r.t.Fatalf("%v: want %v", e, want)
			}
		}
	}
}

// healthPorts checks that healthCheckNodePorts, and no others of the host, answer at the balancer's address.
func (r *rig) healthPorts() {
	for i, s := range r.world.services {
		e := kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: externIP(i), Protocol: kernel.TCP, Port: healthPort(i)}}
		if want := s.exists && s.balanced && s.localOut; r.kernel.State().Has(e) != want {
			r.t.Fatalf("%v: want %v", e, want)
		}
	}
}

func (r *rig) strangersUntouched() {
	state := r.kernel.State()
	for _, k := range []kernel.Key{key("10.96.0.10", 443), key("192.168.1.1", 80)} {
		v, exists := state.Virtual(k)
		if reals := state.Reals(k); !exists || v.Scheduler == "rr" || k.Port == 443 && (len(reals) != 1 || reals[0].Weight != 7) {
			r.t.Fatalf("the virtual server %v of somebody else changed: %v %v %v", k, exists, v, reals)
		}
	}
}

func (r *rig) ours() []kernel.Key {
	return slices.DeleteFunc(r.kernel.State().Keys(), func(k kernel.Key) bool {
		return k == key("10.96.0.10", 443) || k == key("192.168.1.1", 80)
	})
}

func serving(s *kernel.State, k kernel.Key) []netip.AddrPort {
	var all []netip.AddrPort
	for _, real := range s.Reals(k) {
		if real.Weight > 0 {
			all = append(all, real.Addr)
		}
	}
	return all
}

// judge looks at the kernel after one operation: what has a usable endpoint before and after is served, by one of those;
// nothing goes to a pod that no state of the world since then allows; and whose source has to change, has it changed.
func (r *rig) judge(op kernel.Op) {
	if o, is := op.(kernel.DeleteReal); is {
		r.deleted = append(r.deleted, o)
	}
	if r.blind {
		return
	}
	state := r.kernel.State()
	r.judgeHostile(op)
	for _, k := range r.ours() {
		if hostileMayHave(k) {
			continue
		}
		var allowed []netip.AddrPort
		sources := map[kernel.Set]bool{}
		for _, w := range r.worlds {
			e := w[k]
			allowed = append(allowed, e.reals...)
			sources[e.source] = true
		}
		now := serving(state, k)
		for _, real := range now {
			if !slices.Contains(allowed, real) {
				r.t.Fatalf("after %v: %v goes to %v, which is usable in no state since; usable: %v", op, k, real, allowed)
			}
		}
		if len(sources) == 1 && len(now) > 0 && r.reachable(k) {
			for source := range sources {
				if !state.Has(kernel.Element{Set: source, Key: k}) {
					r.t.Fatalf("after %v: %v is reachable and not in set %s", op, k, source)
				}
			}
		}
		if !r.recorded(k) {
			r.t.Fatalf("after %v: nothing says that %v is ours", op, k)
		}
	}
	switch o := op.(type) {
	case kernel.Bind:
		if !state.Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: o.Addr}}) {
			r.t.Fatalf("after %v: ports of the host answer there", op)
		}
		if !r.used(o.Addr) {
			r.t.Fatalf("after %v: no virtual server there, so the host itself answers", op)
		}
	case kernel.Unbind:
		if r.used(o.Addr) {
			r.t.Fatalf("after %v: a virtual server there still has connections, which hang", op)
		}
	case kernel.ChangeSets:
		for _, e := range o.Remove {
			if e.Set == kernel.Isolated && state.Bound(e.Key.Addr) {
				r.t.Fatalf("after %v: ports of the host answer at %v", op, e.Key.Addr)
			}
		}
	}
	r.judgeClients(op)
	r.judgeNeeded(op)
}

// judgeClients checks that a virtual server is never open to more clients than some state of the world since allows, and
// always to those whom all of them allow.
func (r *rig) judgeClients(op kernel.Op) {
	state := r.kernel.State()
	for _, k := range r.ours() {
		if !r.reachable(k) || len(serving(state, k)) == 0 {
			continue
		}
		open := !state.Has(kernel.Element{Set: kernel.Restricted, Key: k})
		mayBeOpen := false
		var may []string
		for _, w := range r.worlds {
			mayBeOpen = mayBeOpen || w[k].from == nil
			may = append(may, w[k].from...)
		}
		if open && !mayBeOpen {
			r.t.Fatalf("after %v: everybody may come to %v", op, k)
		}
		allowed := state.Sources(k)
		for _, p := range allowed {
			if !slices.Contains(may, p.String()) && !mayBeOpen {
				r.t.Fatalf("after %v: %v may come to %v, which no state since allows", op, p, k)
			}
		}
		for _, from := range may {
			inAll := !slices.ContainsFunc(r.worlds, func(w map[kernel.Key]expectation) bool {
				return w[k].from != nil && !slices.Contains(w[k].from, from)
			})
			if inAll && !open && !slices.Contains(allowed, netip.MustParsePrefix(from)) {
				r.t.Fatalf("after %v: %v may not come to %v any more", op, from, k)
			}
		}
	}
}

// senders checks that one who sends from the same port all the time is answered by the next packet, wherever his earlier
// ones went: UDP flows follow the endpoints, also from and to none at all.
func (r *rig) senders(want map[kernel.Key]expectation) {
	if report, err := r.engine.Forget(context.Background()); err != nil || len(report.Failures) > 0 {
		if r.engine.Stale() == 0 {
			r.t.Fatalf("forgetting failed with %v, and is not tried again", report.Failures)
		}
		return
	}
	for k, w := range want {
		if k.Protocol != kernel.UDP {
			continue
		}
		if real, ok := r.kernel.SendUDP(k, sender); ok != (len(w.reals) > 0) || ok && !slices.Contains(w.reals, real) {
			r.t.Fatalf("a sender to %v gets to %v, %v; want one of %v", k, real, ok, w.reals)
		}
	}
}

// send is a packet of UDP to every address that is or was one.
func (r *rig) send(t *rapid.T) {
	for i := range r.world.services {
		for _, a := range []netip.Addr{clusterIP(i), externIP(i), sharedIP} {
			r.kernel.SendUDP(kernel.Key{Addr: a, Protocol: kernel.UDP, Port: 53}, sender)
		}
		for _, a := range nodeAddrs {
			r.kernel.SendUDP(kernel.Key{Addr: a, Protocol: kernel.UDP, Port: nodePort(i, 53)}, sender)
		}
	}
}

var sender = netip.MustParseAddrPort("198.51.100.99:5300")

// reachable reports whether packets to an address come to the node's own IPVS.
func (r *rig) reachable(k kernel.Key) bool {
	return r.kernel.State().Bound(k.Addr) || slices.Contains(nodeAddrs, k.Addr)
}

// used reports whether a virtual server of ours is at an address.
func (r *rig) used(a netip.Addr) bool {
	return slices.ContainsFunc(r.ours(), func(k kernel.Key) bool { return k.Addr == a })
}

func (r *rig) recorded(k kernel.Key) bool {
	return slices.ContainsFunc(kernel.Sets(), func(set kernel.Set) bool {
		return set.RecordsOwnership() && r.kernel.State().Has(kernel.Element{Set: set, Key: k})
	})
}

// judgeNeeded is the promise itself. A world that has only just been entered counts from the first full agreement on.
func (r *rig) judgeNeeded(op kernel.Op) {
	state := r.kernel.State()
	for k := range r.worlds[0] {
		needed := true
		for _, w := range r.worlds {
			needed = needed && len(w[k].reals) > 0
		}
		if !needed {
			continue
		}
		if !r.reachable(k) || len(serving(state, k)) == 0 || state.Has(kernel.Element{Set: kernel.Drop, Key: k}) {
			r.t.Fatalf("after %v: %v had and has usable endpoints and is not served: bound %v, real servers %v, dropped %v", op, k,
				state.Bound(k.Addr), state.Reals(k), state.Has(kernel.Element{Set: kernel.Drop, Key: k}))
		}
	}
}

// drain lets the proxier look at what drains. Only here, and only from pods that have not served for as long as the limits say, may
// connections be cut.
func (r *rig) drain() {
	servers, err := r.kernel.Servers()
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	defer func() {
		for _, s := range servers {
			for _, real := range s.Reals {
				op := kernel.DeleteReal{Key: s.Key, Real: real.Addr}
				at := drain.Key{Virtual: s.Key, Real: real.Addr}
				if slices.Contains(r.deleted, op) && (r.now.Sub(r.listed[at]) >= limits.Unlisted || r.now.Sub(r.served[at]) >= limits.Terminated) {
					r.expired += real.Active
				}
			}
		}
	}()
	r.deleted = nil
	if _, err := r.engine.Drain(context.Background()); err != nil {
		r.t.Fatalf("drain: %v", err)
	}
}

// finish lets all connections end, and checks that the kernel then holds what is wanted and nothing more.
func (r *rig) finish() {
	r.world.hostile = nil
	r.dirty[hostileName] = true
	r.sync()
	r.full()
	for _, k := range r.ours() {
		for _, real := range r.kernel.State().Reals(k) {
			r.kernel.SetConnections(k, real.Addr, 0, 0)
		}
	}
	r.drain()
	want := r.world.contract()
	r.converged(want)
	if n := r.engine.Draining(); n > 0 {
		r.t.Fatalf("%d real servers drain although no connection is left", n)
	}
	if got, all := r.ours(), slices.SortedFunc(maps.Keys(want), kernel.Key.Compare); !slices.Equal(got, all) {
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
			r.t.Fatalf("element %v is left over", e)
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
