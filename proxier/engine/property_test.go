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

// failer is implemented by *testing.T and *rapid.T.
type failer interface{ Fatalf(string, ...any) }

// rig drives an engine on a fake kernel and checks the kernel after every operation.
type rig struct {
	t         failer
	world     *world
	kernel    *fake.Kernel
	noBatches bool // the engine uses kernel.Kernel only, without batches
	peer      peer // nil if the fake is the only kernel
	engine    *Engine
	now       time.Time

	dirty             map[types.NamespacedName]bool
	worlds            []map[kernel.Key]expectation // wanted states since the kernel last agreed with the API; the last one is current
	claims            []map[kernel.Key]bool        // claims of the hostile Service, in the same worlds
	changedExternally bool                         // the kernel was changed externally, so nothing is guaranteed until the next full pass
	recordsLost       bool                         // the ownership records were deleted and are not restored yet

	updateKnown    func()                  // updates listed and served
	listed, served map[drain.Key]time.Time // when the proxier last knew an endpoint as listed, and as serving
	deleted        []kernel.DeleteReal     // by the current drain
	expired        int                     // connections that were cut at the drain limit
}

// peer is another kernel that mirrors the fake. The engine uses it in place of the fake.
type peer interface {
	kernel.Kernel
	// applyExternally changes it as another program would.
	applyExternally(...kernel.Op)
	// flush deletes its tables.
	flush()
	// compare checks that its state equals the fake's.
	compare()
}

var limits = drain.Limits{Terminated: 15 * time.Minute, Unlisted: 5 * time.Minute}

// foreignServers are virtual servers of another program, which must never change.
var foreignServers = []kernel.Op{
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

func newRigOn(t failer, single bool, k *fake.Kernel, other peer) *rig {
	r := &rig{t: t, noBatches: single, world: &world{}, kernel: k, peer: other, now: time.Unix(0, 0),
		dirty: map[types.NamespacedName]bool{}, listed: map[drain.Key]time.Time{}, served: map[drain.Key]time.Time{}}
	r.applyExternally(foreignServers...)
	r.recordWorld()
	r.kernel.OnApply(r.checkInvariants)
	r.start()
	return r
}

// start starts a process: a new engine without memory. If the ownership records were deleted, the old process first
// restores them: if both were lost, the virtual servers would be foreign.
func (r *rig) start() {
	r.kernel.ClearFaults()
	if r.recordsLost {
		r.full()
	}
	var k kernel.Kernel = r.kernel
	if r.peer != nil {
		k = r.peer
	}
	if r.noBatches {
		k = struct{ kernel.Kernel }{k}
	}
	r.engine = New(k, r.world, Options{
		Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true, IPv6: true},
		Drain:   limits, Now: func() time.Time { return r.now },
	})
	r.full()
}

// applyExternally changes the kernel as another program would.
func (r *rig) applyExternally(ops ...kernel.Op) {
	if err := r.kernel.ApplyExternally(ops...); err != nil {
		r.t.Fatalf("%v", err)
	}
	if r.peer != nil {
		r.peer.applyExternally(ops...)
	}
}

// recordWorld appends the wanted state of the current API objects.
func (r *rig) recordWorld() {
	r.worlds = append(r.worlds, r.world.contract())
	r.claims = append(r.claims, r.world.claims())
}

// noteEndpoints updates what the proxier knows of endpoints.
func (r *rig) noteEndpoints() {
	clear(r.dirty)
	world, claims := r.worlds[len(r.worlds)-1], r.claims[len(r.claims)-1]
	r.updateKnown = func() {
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
	r.updateKnown()
}

// advanceTime advances the clock, sometimes past the drain limits.
func (r *rig) advanceTime(t *rapid.T) {
	r.now = r.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 6 * time.Minute, 20 * time.Minute}).Draw(t, "time"))
	r.updateKnown()
}

func (r *rig) full() {
	report, err := r.engine.Full(context.Background())
	if err != nil {
		return // the kernel crashed
	}
	r.noteEndpoints()
	r.changedExternally, r.recordsLost = false, false
	r.settle(report)
}

func (r *rig) sync() {
	names := slices.SortedFunc(maps.Keys(r.dirty), func(a, b types.NamespacedName) int { return len(a.Name) - len(b.Name) })
	r.noteEndpoints()
	report, err := r.engine.Sync(context.Background(), names)
	if err != nil {
		r.t.Fatalf("sync: %v", err)
	}
	r.settle(report)
}

// settle checks that the kernel holds the wanted state after a pass without failures.
func (r *rig) settle(report Report) {
	if r.peer != nil {
		r.peer.compare()
	}
	if len(report.Failures) > 0 || r.changedExternally {
		if len(report.Failures) > 0 && !r.engine.Pending() && len(r.engine.unverified.keys) == 0 {
			r.t.Fatalf("failures %v, but nothing is pending", report.Failures)
		}
		return
	}
	if len(r.dirty) > 0 {
		return
	}
	now := r.worlds[len(r.worlds)-1]
	r.worlds, r.claims = r.worlds[len(r.worlds)-1:], r.claims[len(r.claims)-1:]
	r.checkConverged(now)
}

func (r *rig) checkConverged(want map[kernel.Key]expectation) {
	state := r.kernel.State()
	for k, w := range want {
		if got := serving(state, k); !slices.Equal(got, w.reals) {
			r.t.Fatalf("%v is served by %v, want %v", k, got, w.reals)
		}
		if v, exists := state.Virtual(k); !exists || state.Bound(k.Addr) != w.bound || v.Scheduler != w.sched {
			r.t.Fatalf("%v: virtual server %v with scheduler %s, want %s; address bound %v", k, exists, v.Scheduler, w.sched, state.Bound(k.Addr))
		}
		r.checkClients(k, w.from)
		for _, set := range kernel.Sets() {
			if wanted := set == w.source || set == kernel.Drop && w.drop || set == kernel.Restricted && w.from != nil; set.PerServer() &&
				state.Has(kernel.Element{Set: set, Key: k}) != wanted {
				r.t.Fatalf("%v in set %s: want %v", k, set, wanted)
			}
		}
	}
	r.checkForeignServers()
	r.checkHairpins()
	r.checkHealthPorts()
	r.checkUDPFlows(want)
	for _, k := range r.ownKeys() {
		if _, wanted := want[k]; !wanted && !hostileMayHave(k) && len(serving(state, k)) > 0 {
			r.t.Fatalf("%v is not wanted and served by %v", k, serving(state, k))
		}
	}
}

// checkClients checks that exactly the wanted clients are allowed.
func (r *rig) checkClients(k kernel.Key, want []string) {
	var got []string
	for _, p := range r.kernel.State().Sources(k) {
		got = append(got, p.String())
	}
	slices.Sort(got)
	if want = slices.Clone(want); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		r.t.Fatalf("%v allows %v, want %v", k, got, want)
	}
}

// checkHairpins checks that exactly the pods of this node are in the hairpin set.
func (r *rig) checkHairpins() {
	for i, s := range r.world.services {
		for p, state := range s.pods {
			e := kernel.Element{Set: kernel.Hairpin, Key: kernel.Key{Addr: pod(i, p, 0).Addr()}}
			want := s.exists && local(p) && state != absent
			if r.kernel.State().Has(e) != want {
				r.t.Fatalf("%v: want %v", e, want)
			}
			e.Key.Addr = podIPv6(pod(i, p, 0)).Addr()
			if want = want && s.dualStack; r.kernel.State().Has(e) != want {
				r.t.Fatalf("%v: want %v", e, want)
			}
		}
	}
}

// checkHealthPorts checks that exactly the healthCheckNodePorts answer at load balancer addresses.
func (r *rig) checkHealthPorts() {
	for i, s := range r.world.services {
		e := kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: externIP(i), Protocol: kernel.TCP, Port: healthPort(i)}}
		if want := s.exists && s.loadBalancer && s.externalLocal; r.kernel.State().Has(e) != want {
			r.t.Fatalf("%v: want %v", e, want)
		}
	}
}

func (r *rig) checkForeignServers() {
	state := r.kernel.State()
	for _, k := range []kernel.Key{key("10.96.0.10", 443), key("192.168.1.1", 80)} {
		v, exists := state.Virtual(k)
		if reals := state.Reals(k); !exists || v.Scheduler == "rr" || k.Port == 443 && (len(reals) != 1 || reals[0].Weight != 7) {
			r.t.Fatalf("the foreign virtual server %v changed: %v %v %v", k, exists, v, reals)
		}
	}
}

func (r *rig) ownKeys() []kernel.Key {
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

// checkInvariants checks the kernel after one operation. What has usable endpoints before and after is served by
// them, nothing goes to a pod that no recorded world allows, and required masquerading is in place.
func (r *rig) checkInvariants(op kernel.Op) {
	if o, is := op.(kernel.DeleteReal); is {
		r.deleted = append(r.deleted, o)
	}
	if r.changedExternally {
		return
	}
	state := r.kernel.State()
	r.checkHostile(op)
	for _, k := range r.ownKeys() {
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
			r.t.Fatalf("after %v: %v has no ownership record", op, k)
		}
	}
	switch o := op.(type) {
	case kernel.Bind:
		if !state.Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: o.Addr}}) {
			r.t.Fatalf("after %v: ports of the host answer there", op)
		}
		if !r.used(o.Addr) {
			r.t.Fatalf("after %v: address bound without a virtual server, so the host itself answers", op)
		}
	case kernel.Unbind:
		if r.used(o.Addr) {
			r.t.Fatalf("after %v: address unbound while a virtual server there has connections", op)
		}
	case kernel.ChangeSets:
		for _, e := range o.Remove {
			if e.Set == kernel.Isolated && state.Bound(e.Key.Addr) {
				r.t.Fatalf("after %v: ports of the host answer at %v", op, e.Key.Addr)
			}
		}
	}
	r.checkAllowedClients(op)
	r.checkServed(op)
}

// checkAllowedClients checks that a virtual server allows no client that all recorded worlds reject, and every client
// that all of them allow.
func (r *rig) checkAllowedClients(op kernel.Op) {
	state := r.kernel.State()
	for _, k := range r.ownKeys() {
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
			r.t.Fatalf("after %v: %v allows all clients", op, k)
		}
		allowed := state.Sources(k)
		for _, p := range allowed {
			if !slices.Contains(may, p.String()) && !mayBeOpen {
				r.t.Fatalf("after %v: clients %v are allowed at %v, but in no recorded world", op, p, k)
			}
		}
		for _, from := range may {
			inAll := !slices.ContainsFunc(r.worlds, func(w map[kernel.Key]expectation) bool {
				return w[k].from != nil && !slices.Contains(w[k].from, from)
			})
			if inAll && !open && !slices.Contains(allowed, netip.MustParsePrefix(from)) {
				r.t.Fatalf("after %v: clients %v are no longer allowed at %v", op, from, k)
			}
		}
	}
}

// checkUDPFlows checks that a client with a fixed port reaches a current endpoint with its next packet, wherever
// earlier ones went.
func (r *rig) checkUDPFlows(want map[kernel.Key]expectation) {
	if report, err := r.engine.ForgetFlows(context.Background()); err != nil || len(report.Failures) > 0 {
		if r.engine.StaleFlows() == 0 {
			r.t.Fatalf("deleting flows failed with %v, but is not pending", report.Failures)
		}
		return
	}
	for k, w := range want {
		if k.Protocol != kernel.UDP {
			continue
		}
		if real, ok := r.kernel.SendUDP(k, udpClient); ok != (len(w.reals) > 0) || ok && !slices.Contains(w.reals, real) {
			r.t.Fatalf("a client of %v reaches %v, %v; want one of %v", k, real, ok, w.reals)
		}
	}
}

// sendUDP sends a packet to every current and former UDP virtual server.
func (r *rig) sendUDP(t *rapid.T) {
	for i := range r.world.services {
		for _, a := range []netip.Addr{clusterIP(i), externIP(i), sharedIP} {
			r.kernel.SendUDP(kernel.Key{Addr: a, Protocol: kernel.UDP, Port: 53}, udpClient)
		}
		for _, a := range nodeAddrs {
			r.kernel.SendUDP(kernel.Key{Addr: a, Protocol: kernel.UDP, Port: nodePort(i, 53)}, udpClient)
		}
	}
}

var udpClient = netip.MustParseAddrPort("198.51.100.99:5300")

// reachable reports whether packets to an address reach the node's IPVS.
func (r *rig) reachable(k kernel.Key) bool {
	return r.kernel.State().Bound(k.Addr) || slices.Contains(nodeAddrs, k.Addr)
}

// used reports whether the proxier has a virtual server at an address.
func (r *rig) used(a netip.Addr) bool {
	return slices.ContainsFunc(r.ownKeys(), func(k kernel.Key) bool { return k.Addr == a })
}

func (r *rig) recorded(k kernel.Key) bool {
	return slices.ContainsFunc(kernel.Sets(), func(set kernel.Set) bool {
		return set.RecordsOwnership() && r.kernel.State().Has(kernel.Element{Set: set, Key: k})
	})
}

// checkServed checks the main invariant. A new world counts from the first full agreement on.
func (r *rig) checkServed(op kernel.Op) {
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

// drain runs Engine.Drain. Only here, and only to pods past their drain limit, may connections be cut.
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
