package engine

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// bench is an engine with one Service of one ready pod in a settled kernel. Its pods are on another node, so that no
// hairpin stands between the lines.
type bench struct {
	*testing.T
	world  *world
	kernel *fake.Kernel
	engine *Engine
	now    time.Time
	seen   int
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, world: &world{}, kernel: fake.New(nodeAddrs...), now: time.Unix(0, 0)}
	b.world.services[0] = service{exists: true, pods: [4]podState{2: ready}}
	b.restart()
	return b
}

func (b *bench) restart() Report {
	b.Helper()
	b.engine = New(b.kernel, b.world, Options{Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true},
		Drain: limits, Now: func() time.Time { return b.now }})
	return b.report(b.engine.Full(context.Background()))
}

func (b *bench) report(r Report, err error) Report {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *bench) set(p0, p1 podState) Report {
	b.Helper()
	b.world.services[0].pods = [4]podState{2: p0, 3: p1}
	return b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
}

func (b *bench) drain() Report {
	b.Helper()
	return b.report(b.engine.Drain(context.Background()))
}

// ops returns what was done to the kernel since the last call.
func (b *bench) ops() []string {
	all := b.kernel.Ops()
	words := []string{}
	for _, op := range all[b.seen:] {
		words = append(words, strings.ReplaceAll(op.String(), vip.String(), "VIP"))
	}
	b.seen = len(all)
	return words
}

func (b *bench) did(what string, want ...string) {
	b.Helper()
	if diff := cmp.Diff(append([]string{}, want...), b.ops()); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var (
	vip  = kernel.Key{Addr: clusterIP(0), Protocol: kernel.TCP, Port: 80}
	pod0 = pod(0, 2, 8080)
)

// The twin of kubernetes#117205: a pod that is ready again keeps its connections, since only its weight changes.
func TestReadinessFlapChangesOnlyTheWeight(t *testing.T) {
	b := newBench(t)
	b.ops()
	b.kernel.SetConnections(vip, pod0, 8, 0)
	for range 200 {
		b.set(unready, absent)
		b.drain()
		r := b.set(ready, absent)
		if r.Cancelled != 1 || len(r.Moves) != 1 || r.Moves[0].What != Restored {
			t.Fatalf("ready again: %+v", r)
		}
		b.did("one flap", "set-weight VIP 10.244.2.2:8080 weight 0", "set-weight VIP 10.244.2.2:8080 weight 1")
	}
	b.now = b.now.Add(24 * time.Hour)
	b.drain()
	b.did("nothing is left of the flaps")
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
		what  What
	}{
		{"no connection", draining, 0, 0, []string{deleted}, Deleted},
		{"serves on", draining, 24 * time.Hour, 1, []string{}, ""},
		{"unready, and does not terminate", unready, 24 * time.Hour, 1, []string{}, ""},
		{"listed, in time", dying, 15*time.Minute - 1, 1, []string{}, ""},
		{"listed, time is up", dying, 15 * time.Minute, 1, []string{deleted}, Expired},
		{"gone, in time", absent, 5*time.Minute - 1, 1, []string{}, ""},
		{"gone, time is up", absent, 5 * time.Minute, 1, []string{deleted}, Expired},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			b.ops()
			b.kernel.SetConnections(vip, pod0, test.conns, 0)
			b.set(test.state, ready)
			b.did("another pod is ready", added, weight0)
			b.now = b.now.Add(test.after)
			r := b.drain()
			b.did("later", test.want...)
			if len(test.want) > 0 && (len(r.Moves) != 1 || r.Moves[0].What != test.what || r.Moves[0].Service != name(0)) {
				t.Errorf("moves %+v, want one that is %s", r.Moves, test.what)
			}
			if left := b.engine.Draining(); left != 1-len(test.want) {
				t.Errorf("%d drain", left)
			}
		})
	}
}

// Somebody gave the real server a weight while it drained: it takes connections, so it is not deleted, idle or not.
func TestDrainDoesNotDeleteWhatTakesConnections(t *testing.T) {
	b := newBench(t)
	b.set(draining, ready)
	b.ops()
	if err := b.kernel.ApplyExternally(kernel.SetWeight{Key: vip, Real: pod0, Weight: 5}); err != nil {
		t.Fatal(err)
	}
	b.drain()
	b.did("at the first look", "set-weight VIP 10.244.2.2:8080 weight 0")
	b.drain()
	b.did("at the second", "delete-real VIP 10.244.2.2:8080")
}

func TestServiceLivesOnUntilItsConnectionsEnd(t *testing.T) {
	b := newBench(t)
	b.ops()
	b.kernel.SetConnections(vip, pod0, 1, 0)
	b.world.services[0].exists = false
	b.set(ready, absent)
	b.did("deleted", "set-weight VIP 10.244.2.2:8080 weight 0")
	b.restart()
	b.did("restart")
	b.kernel.SetConnections(vip, pod0, 0, 1)
	b.drain()
	b.did("one is in TIME_WAIT")
	b.kernel.SetConnections(vip, pod0, 0, 0)
	r := b.drain()
	b.did("all have ended", "delete-real VIP 10.244.2.2:8080", "delete-virtual VIP", "unbind 10.96.0.10", "change-sets -isolated:10.96.0.10 -off-cluster:VIP")
	if b.engine.Draining()+b.engine.Size() > 0 || b.engine.Pending() || len(r.Failures) > 0 {
		t.Errorf("something is left: %+v", r)
	}
}

// kubernetes#92019: a real server that an earlier process left at weight 0 gets its weight back.
func TestAdoption(t *testing.T) {
	b := newBench(t)
	b.set(unready, ready)
	b.ops()
	b.world.services[0].pods = [4]podState{2: ready, 3: ready}
	if r := b.restart(); len(r.Repairs) > 0 {
		t.Errorf("the first pass reports repairs: %v", r.Repairs)
	}
	b.did("restart while one drains", "set-weight VIP 10.244.2.2:8080 weight 1")
	b.restart()
	b.did("restart with nothing changed")
}

func TestReconciliationSaysWhatItRepaired(t *testing.T) {
	b := newBench(t)
	if err := b.kernel.ApplyExternally(kernel.DeleteReal{Key: vip, Real: pod0}); err != nil {
		t.Fatal(err)
	}
	r := b.report(b.engine.Full(context.Background()))
	if diff := cmp.Diff([]string{"add-real 10.96.0.10:80/tcp 10.244.2.2:8080 weight 1"}, r.Repairs); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	b.world.services[0].pods[3] = ready // a change that the engine was not told of is no repair
	if r = b.report(b.engine.Full(context.Background())); len(r.Repairs) > 0 || r.Operations != 1 {
		t.Errorf("a late change is reported as %v", r.Repairs)
	}
}

// Restoring reads the filter sets only, puts back what is missing there, and touches nothing else.
func TestRestoring(t *testing.T) {
	b := newBench(t)
	b.kernel.SetConnections(vip, pod0, 8, 0)
	want := b.kernel.State().Elements()
	b.ops()
	b.kernel.FlushSets()
	r := b.report(b.engine.Restore(context.Background()))
	if got := b.kernel.State().Elements(); !slices.Equal(got, want) || len(r.Repairs) != 1 || len(b.ops()) != 1 || b.kernel.CutConnections() > 0 {
		t.Errorf("restored %v, want %v; repairs %v", got, want, r.Repairs)
	}
	if r = b.report(b.engine.Restore(context.Background())); r.Operations > 0 || len(r.Repairs) > 0 {
		t.Errorf("with nothing missing it did %d operations, %v", r.Operations, r.Repairs)
	}
	if _, err := New(b.kernel, b.world, Options{}).Restore(context.Background()); err == nil {
		t.Error("an engine that has read nothing restores")
	}
}

// unreadable is a kernel whose reads a test makes fail.
type unreadable struct {
	kernel.Kernel
	addresses, servers bool
	keys               map[kernel.Key]bool
}

var errUnreadable = errors.New("unreadable")

func (u *unreadable) Addresses() (kernel.Addresses, error) {
	if u.addresses {
		return kernel.Addresses{}, errUnreadable
	}
	return u.Kernel.Addresses()
}

func (u *unreadable) Servers() ([]kernel.Server, error) {
	if u.servers {
		return nil, errUnreadable
	}
	return u.Kernel.Servers()
}

func (u *unreadable) Server(k kernel.Key) (kernel.Server, bool, error) {
	if u.keys[k] {
		return kernel.Server{}, false, errUnreadable
	}
	return u.Kernel.Server(k)
}

// A change that a reconciliation took up is in the kernel with the next try, though the reconciliation itself could not read.
func TestChangesSurviveAFailedReconciliation(t *testing.T) {
	for what, fail := range map[string]func(*unreadable, bool){
		"addresses": func(u *unreadable, fails bool) { u.addresses = fails },
		"servers":   func(u *unreadable, fails bool) { u.servers = fails },
	} {
		b := newBench(t)
		u := &unreadable{Kernel: b.kernel}
		b.engine.kernel = u
		fail(u, true)
		b.world.services[0].pods = [4]podState{3: ready}
		b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
		if _, err := b.engine.Full(context.Background()); !errors.Is(err, errUnreadable) {
			t.Fatalf("%s: error %v", what, err)
		}
		if !b.engine.Pending() {
			t.Errorf("%s could not be read, and nothing is pending", what)
		}
		fail(u, false)
		b.report(b.engine.Sync(context.Background(), nil))
		other := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
		if got := serving(b.kernel.State(), vip); len(got) != 1 || got[0] != pod(0, 3, 8080) || len(serving(b.kernel.State(), other)) != 1 {
			t.Errorf("%s: after the next try served by %v, the new Service by %v", what, got, serving(b.kernel.State(), other))
		}
	}
}

// When somebody deletes the device, all addresses are gone with it. The first failure on one of them tells, and all of them are back
// with the next try.
func TestDeviceThatWasDeleted(t *testing.T) {
	b := newBench(t)
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	b.world.services[2] = service{exists: true, balanced: true, secondPort: true, pods: [4]podState{ready}}
	b.report(b.engine.Full(context.Background()))
	want := b.kernel.State().Addresses()
	for _, a := range want {
		if err := b.kernel.ApplyExternally(kernel.Unbind{Addr: a}); err != nil {
			t.Fatal(err)
		}
	}
	b.world.services[1].shared = true
	b.kernel.RejectWith(func(op kernel.Op) error {
		if op.Name() == "bind" {
			return syscall.ENODEV
		}
		return nil
	})
	r := b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
	if len(r.Failures) != 1 {
		t.Fatalf("failures %v", r.Failures)
	}
	b.kernel.ClearFaults() // the device is made again when the addresses are read
	b.report(b.engine.Sync(context.Background(), nil))
	if want = append(want, sharedIP); !slices.Equal(b.kernel.State().Addresses(), want) || b.engine.Pending() {
		t.Errorf("bound are %v, want %v", b.kernel.State().Addresses(), want)
	}
}

func TestVirtualServersOfOthers(t *testing.T) {
	b := newBench(t)
	theirs := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
	if err := b.kernel.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: theirs, Scheduler: "wlc"}}); err != nil {
		t.Fatal(err)
	}
	b.ops()
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	sync := func() Report {
		return b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
	}
	r := sync()
	if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer || len(r.Failures) > 0 {
		t.Fatalf("met while working: refused %v, failures %v", r.Refused, r.Failures)
	}
	if r = sync(); len(r.Refused) > 0 || b.engine.Pending() {
		t.Errorf("refused again: %v", r.Refused)
	}
	for _, e := range b.kernel.State().Elements() {
		if e.Key == theirs {
			t.Errorf("it is on record as ours: %v", e)
		}
	}
	if b.kernel.State().Bound(theirs.Addr) {
		t.Error("its address is bound, though no virtual server of ours is there")
	}
	r = b.restart()
	if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer {
		t.Errorf("met at the start: refused %v", r.Refused)
	}
	if v, _ := b.kernel.State().Virtual(theirs); v.Scheduler != "wlc" || len(b.kernel.State().Reals(theirs)) > 0 {
		t.Error("it was changed")
	}
	if err := b.kernel.ApplyExternally(kernel.DeleteVirtual{Key: theirs}); err != nil {
		t.Fatal(err)
	}
	b.report(b.engine.Full(context.Background()))
	if got := serving(b.kernel.State(), theirs); len(got) != 1 {
		t.Errorf("after its owner deleted it, it is served by %v", got)
	}
}

// A process that dies wherever it likes leaves no record that makes somebody else's virtual server the next one's own.
func TestDeathBesideVirtualServersOfOthers(t *testing.T) {
	theirs := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
	for n := range 6 {
		b := newBench(t)
		if err := b.kernel.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: theirs, Scheduler: "wlc"}}); err != nil {
			t.Fatal(err)
		}
		b.world.services[1] = service{exists: true, secondPort: true, pods: [4]podState{ready}}
		b.kernel.FailAt(n, fake.Crash)
		b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
		b.kernel.ClearFaults()
		b.restart()
		if v, _ := b.kernel.State().Virtual(theirs); v.Scheduler != "wlc" || len(b.kernel.State().Reals(theirs)) > 0 {
			t.Errorf("after a death at operation %d it was taken over: %+v", n, v)
		}
		b.world.services[1].exists = false
		b.report(b.engine.Full(context.Background()))
		b.drain()
		if _, exists := b.kernel.State().Virtual(theirs); !exists {
			t.Errorf("after a death at operation %d and the end of the Service it was deleted", n)
		}
	}
}

// hostile is a world with one Service that no proxy should obey.
type hostile struct{ *world }

func (h hostile) Service(n types.NamespacedName) *v1.Service {
	s := h.world.Service(n)
	if n == name(1) && s != nil {
		s.Spec.ExternalIPs = []string{"127.0.0.1", "10.0.0.11", "169.254.169.254", clusterIP(0).String(), "x"}
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: 80}, v1.ServicePort{Port: -1}, v1.ServicePort{Port: 9, Protocol: "?"})
	}
	return s
}

func TestHostileServiceHarmsNobody(t *testing.T) {
	b := newBench(t)
	b.engine.objects = hostile{b.world}
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	names := []types.NamespacedName{name(1), name(0)}
	r := b.report(b.engine.Sync(context.Background(), names))
	reasons := map[desired.Reason]int{}
	for _, refusal := range r.Refused {
		reasons[refusal.Reason]++
	}
	want := map[desired.Reason]int{desired.BadAddress: 4, desired.AddressTaken: 1, desired.DuplicatePort: 1, desired.BadPort: 1, desired.UnknownProtocol: 1}
	if diff := cmp.Diff(want, reasons); diff != "" || len(r.Failures) > 0 {
		t.Errorf("refused (-want +got):\n%s\nfailures %v", diff, r.Failures)
	}
	if r = b.report(b.engine.Sync(context.Background(), names)); len(r.Refused) > 0 {
		t.Errorf("refused a second time: %v", r.Refused)
	}
	if got := b.kernel.State().Addresses(); len(got) != 2 {
		t.Errorf("bound are %v, want the two cluster IPs", got)
	}
	if got := serving(b.kernel.State(), vip); len(got) != 1 || got[0] != pod0 {
		t.Errorf("the Service whose address was claimed is served by %v", got)
	}
}

// One virtual server for which the kernel takes nothing, not even an element among others of one transaction, keeps no
// other from being served; and it is served once the kernel takes it.
func TestOneBadServiceAmongMany(t *testing.T) {
	f, k, e := newFleet(64)
	bad := kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, 37}), Protocol: kernel.TCP, Port: 80}
	k.FailKey(bad)
	served := func() (n int) {
		for i := range f.n {
			at := kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Protocol: kernel.TCP, Port: 80}
			if len(serving(k.State(), at)) == 4 && k.State().Bound(at.Addr) {
				n++
			}
		}
		return n
	}
	pass := func(r Report, err error) Report {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	pass(e.Full(context.Background()))
	r := pass(e.Sync(context.Background(), nil))
	if n := served(); n != f.n-1 || len(r.Failures) != 1 || !e.Pending() {
		t.Errorf("%d of %d are served, failures %v, pending %v", n, f.n, r.Failures, e.Pending())
	}
	if r.Operations > 6*f.n+20 {
		t.Errorf("it took %d operations", r.Operations)
	}
	k.ClearFaults()
	pass(e.Sync(context.Background(), nil))
	if n := served(); n != f.n || e.Pending() {
		t.Errorf("after the kernel came round %d are served, pending %v", n, e.Pending())
	}
}

// A virtual server that cannot be read, after a failure or before it is made, keeps no other from being changed; it follows when it
// can be.
func TestOneUnreadableServiceAmongMany(t *testing.T) {
	f, k, e := newFleet(8)
	pass := func(r Report, err error) Report {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	at := func(i int) kernel.Key {
		return kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Protocol: kernel.TCP, Port: 80}
	}
	pass(e.Full(context.Background()))
	u := &unreadable{Kernel: k, keys: map[kernel.Key]bool{at(3): true, at(8): true}}
	e.kernel = u
	f.fewer = true
	e.suspect.keys[at(3)] = true // as an operation leaves it that failed
	f.n = 10
	names := []types.NamespacedName{f.name(0), f.name(3), f.name(8), f.name(9)}
	for range 2 {
		r := pass(e.Sync(context.Background(), names))
		names = nil
		if len(r.Failures) != 2 || !e.Pending() {
			t.Errorf("failures %v, pending %v", r.Failures, e.Pending())
		}
	}
	if got := serving(k.State(), at(0)); len(got) != 3 || len(serving(k.State(), at(9))) != 4 {
		t.Errorf("of two others one is served by %v, want three, the other by %v, want four", got, serving(k.State(), at(9)))
	}
	if _, made := k.State().Virtual(at(8)); made {
		t.Error("a virtual server was made without a look at whether it was there")
	}
	u.keys = nil
	if r := pass(e.Sync(context.Background(), nil)); len(serving(k.State(), at(8))) != 4 || e.Pending() || len(r.Failures) > 0 {
		t.Errorf("when they can be read the new one is served by %v, failures %v", serving(k.State(), at(8)), r.Failures)
	}
}

// When the node gets another primary address, NodePorts follow, and connections to the old one drain.
func TestNodePortFollowsTheNode(t *testing.T) {
	b := newBench(t)
	b.world.services[0].nodePort = true
	b.set(ready, absent)
	at := func(i int) kernel.Key {
		return kernel.Key{Addr: nodeAddrs[i], Protocol: kernel.TCP, Port: nodePort(0, 80)}
	}
	b.kernel.SetConnections(at(0), pod0, 1, 0)
	b.world.address = 1
	b.report(b.engine.Sync(context.Background(), nil))
	state := b.kernel.State()
	if w, _ := state.Weight(at(0), pod0); w != 0 || len(serving(state, at(1))) != 1 || b.kernel.CutConnections() > 0 {
		t.Errorf("the old address has weight %d, the new one is served by %v, %d cut", w, serving(state, at(1)), b.kernel.CutConnections())
	}
	b.kernel.SetConnections(at(0), pod0, 0, 0)
	b.drain()
	if _, left := state.Virtual(at(0)); left || len(state.Addresses()) != 1 {
		t.Errorf("the old virtual server is there: %v; bound are %v", left, state.Addresses())
	}
}

// lateNode is a world whose Node is not known yet.
type lateNode struct {
	*world
	known bool
}

func (l *lateNode) NodeAddresses() []netip.Addr {
	if l.known {
		return l.world.NodeAddresses()
	}
	return nil
}

// A start that does not know its Node yet serves NodePorts where the last process did; what it did not serve, it does as soon as
// the Node is known.
func TestNodeThatComesLate(t *testing.T) {
	b := newBench(t)
	b.world.services[0].nodePort = true
	b.set(ready, ready)
	b.world.services[1] = service{exists: true, nodePort: true, pods: [4]podState{2: ready}}
	at := func(svc, addr int) kernel.Key {
		return kernel.Key{Addr: nodeAddrs[addr], Protocol: kernel.TCP, Port: nodePort(svc, 80)}
	}
	b.kernel.SetConnections(at(0, 0), pod0, 1, 0)
	late := &lateNode{world: b.world}
	b.engine = New(b.kernel, late, Options{Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true},
		Drain: limits, Now: func() time.Time { return b.now }})
	b.world.services[0].pods = [4]podState{2: ready, 3: unready}
	b.report(b.engine.Full(context.Background()))
	served := func(when string, want ...netip.AddrPort) {
		t.Helper()
		if got := serving(b.kernel.State(), at(0, 0)); !slices.Equal(got, want) || b.kernel.CutConnections() > 0 {
			t.Errorf("%s: the NodePort is served by %v, want %v", when, got, want)
		}
	}
	served("after the start, when one pod had gone", pod0)
	b.report(b.engine.Full(context.Background()))
	b.drain()
	served("after a reconciliation", pod0)
	b.world.services[0].pods[3] = ready
	b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
	served("with another pod", pod0, pod(0, 3, 8080))
	late.known, b.world.address = true, 1
	b.report(b.engine.Sync(context.Background(), nil))
	b.kernel.SetConnections(at(0, 0), pod0, 0, 0)
	b.drain()
	served("at an address that is not the Node's primary one after all")
	for svc, want := range []int{2, 1} {
		if got := serving(b.kernel.State(), at(svc, 1)); len(got) != want {
			t.Errorf("when the Node is known, the NodePort of Service %d is served by %v", svc, got)
		}
	}
}

// A failure on one virtual server does not keep others from being served.
func TestFailureStaysWhereItIs(t *testing.T) {
	b := newBench(t)
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	b.world.services[2] = service{exists: true, pods: [4]podState{ready}}
	b.kernel.FailAt(1, fake.Fail) // the first virtual server; 0 is the sets
	r := b.report(b.engine.Sync(context.Background(), []types.NamespacedName{name(1), name(2)}))
	key := func(i int) kernel.Key { return kernel.Key{Addr: clusterIP(i), Protocol: kernel.TCP, Port: 80} }
	if len(r.Failures) != 1 || len(serving(b.kernel.State(), key(2))) != 1 || b.kernel.State().Bound(clusterIP(1)) {
		t.Errorf("failures %v; the other is served by %v; the failed one is bound: %v", r.Failures,
			serving(b.kernel.State(), key(2)), b.kernel.State().Bound(clusterIP(1)))
	}
	if !b.engine.Pending() {
		t.Error("nothing is pending")
	}
	b.report(b.engine.Sync(context.Background(), nil))
	if len(serving(b.kernel.State(), key(1))) != 1 || b.engine.Pending() {
		t.Error("the second try did not cure it")
	}
}

// An address is not bound before it is isolated, also where the virtual server has been there all the time: programs of the host would
// answer.
func TestNoAddressIsBoundBeforeItIsIsolated(t *testing.T) {
	b := newBench(t)
	b.kernel.FlushSets()
	if err := b.kernel.ApplyExternally(kernel.Unbind{Addr: vip.Addr}); err != nil {
		t.Fatal(err)
	}
	isolated := kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: vip.Addr}}
	b.kernel.FailAt(0, fake.Fail) // the sets
	b.report(b.engine.Full(context.Background()))
	if b.kernel.State().Bound(vip.Addr) && !b.kernel.State().Has(isolated) {
		t.Error("it is bound, and not isolated")
	}
	b.report(b.engine.Sync(context.Background(), nil))
	if !b.kernel.State().Bound(vip.Addr) || !b.kernel.State().Has(isolated) || b.engine.Pending() {
		t.Errorf("after the next try: bound %v, isolated %v", b.kernel.State().Bound(vip.Addr), b.kernel.State().Has(isolated))
	}
}

// A remote pod that could not be taken out goes on being masqueraded, or its answers would miss the client.
func TestFailedDrainKeepsItsMasquerading(t *testing.T) {
	b := newBench(t)
	b.world.services[0].balanced = true
	b.set(ready, absent)
	b.world.services[0].localOut = true
	b.kernel.FailAt(1, fake.Fail) // the weight; 0 is the sets
	r := b.set(ready, absent)
	external := kernel.Key{Addr: externIP(0), Protocol: kernel.TCP, Port: 80}
	masqueraded := func() bool { return b.kernel.State().Has(kernel.Element{Set: kernel.Masquerade, Key: external}) }
	if len(r.Failures) != 1 || len(serving(b.kernel.State(), external)) != 1 || !masqueraded() {
		t.Errorf("failures %v, served by %v, masqueraded: %v", r.Failures, serving(b.kernel.State(), external), masqueraded())
	}
	b.set(ready, absent)
	if len(serving(b.kernel.State(), external)) != 0 || masqueraded() {
		t.Error("the second try did not cure it")
	}
}
