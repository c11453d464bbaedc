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
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// fixture is a synchronised engine with one Service of one ready pod. The pod is on another node, so that no hairpin
// element appears in the operations.
type fixture struct {
	*testing.T
	world   *world
	kernel  *fake.Kernel
	engine  *Engine
	now     time.Time
	opsSeen int
}

func newFixture(t *testing.T) *fixture {
	b := &fixture{T: t, world: &world{}, kernel: fake.New(nodeAddrs...), now: time.Unix(0, 0)}
	b.world.services[0] = service{exists: true, pods: [4]podState{2: ready}}
	b.restart()
	return b
}

func (b *fixture) restart() Report {
	b.Helper()
	b.engine = New(b.kernel, b.world, Options{Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true},
		Drain: limits, Now: func() time.Time { return b.now }})
	return b.mustReport(b.engine.Full(context.Background()))
}

func (b *fixture) mustReport(r Report, err error) Report {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *fixture) setPods(p0, p1 podState) Report {
	b.Helper()
	b.world.services[0].pods = [4]podState{2: p0, 3: p1}
	return b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
}

func (b *fixture) drain() Report {
	b.Helper()
	return b.mustReport(b.engine.Drain(context.Background()))
}

// newOps returns the operations since the last call.
func (b *fixture) newOps() []string {
	all := b.kernel.Ops()
	words := []string{}
	for _, op := range all[b.opsSeen:] {
		words = append(words, strings.ReplaceAll(op.String(), vip.String(), "VIP"))
	}
	b.opsSeen = len(all)
	return words
}

func (b *fixture) expectOps(what string, want ...string) {
	b.Helper()
	if diff := cmp.Diff(append([]string{}, want...), b.newOps()); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var (
	vip  = kernel.Key{Addr: clusterIP(0), Protocol: kernel.TCP, Port: 80}
	pod0 = pod(0, 2, 8080)
)

// kubernetes#92019: a real server that an earlier process left at weight 0 gets its weight back.
func TestRestartRestoresWeights(t *testing.T) {
	b := newFixture(t)
	b.setPods(unready, ready)
	b.newOps()
	b.world.services[0].pods = [4]podState{2: ready, 3: ready}
	if r := b.restart(); len(r.Repairs) > 0 {
		t.Errorf("the first pass reports repairs: %v", r.Repairs)
	}
	b.expectOps("restart with a draining real server", "set-weight VIP 10.244.2.2:8080 weight 1")
	b.restart()
	b.expectOps("restart without a change")
}

func TestFullReportsRepairs(t *testing.T) {
	b := newFixture(t)
	if err := b.kernel.ApplyExternally(kernel.DeleteReal{Key: vip, Real: pod0}); err != nil {
		t.Fatal(err)
	}
	r := b.mustReport(b.engine.Full(context.Background()))
	if diff := cmp.Diff([]string{"add-real 10.96.0.10:80/tcp 10.244.2.2:8080 weight 1"}, r.Repairs); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	b.world.services[0].pods[3] = ready // an API change that the engine was not notified of is no repair
	if r = b.mustReport(b.engine.Full(context.Background())); len(r.Repairs) > 0 || r.Operations != 1 {
		t.Errorf("an API change is reported as repairs %v", r.Repairs)
	}
}

// Restore reads only the filter sets, and recreates only what is missing there.
func TestRestore(t *testing.T) {
	b := newFixture(t)
	b.kernel.SetConnections(vip, pod0, 8, 0)
	want := b.kernel.State().Elements()
	b.newOps()
	b.kernel.FlushSets()
	r := b.mustReport(b.engine.Restore(context.Background()))
	if got := b.kernel.State().Elements(); !slices.Equal(got, want) || len(r.Repairs) != 1 || len(b.newOps()) != 1 || b.kernel.CutConnections() > 0 {
		t.Errorf("restored %v, want %v; repairs %v", got, want, r.Repairs)
	}
	if r = b.mustReport(b.engine.Restore(context.Background())); r.Operations > 0 || len(r.Repairs) > 0 {
		t.Errorf("with nothing missing: %d operations, repairs %v", r.Operations, r.Repairs)
	}
	if _, err := New(b.kernel, b.world, Options{}).Restore(context.Background()); err == nil {
		t.Error("Restore succeeds before the kernel was read")
	}
}

// failingReads is a kernel whose reads a test makes fail.
type failingReads struct {
	kernel.Kernel
	addresses, servers bool
	keys               map[kernel.Key]bool
}

var errUnreadable = errors.New("unreadable")

func (u *failingReads) Addresses() (kernel.Addresses, error) {
	if u.addresses {
		return kernel.Addresses{}, errUnreadable
	}
	return u.Kernel.Addresses()
}

func (u *failingReads) Servers() ([]kernel.Server, error) {
	if u.servers {
		return nil, errUnreadable
	}
	return u.Kernel.Servers()
}

func (u *failingReads) Server(k kernel.Key) (kernel.Server, bool, error) {
	if u.keys[k] {
		return kernel.Server{}, false, errUnreadable
	}
	return u.Kernel.Server(k)
}

// unreadable lets one read of the kernel fail, or succeed again.
var unreadable = map[string]func(u *failingReads, fails bool){
	"addresses": func(u *failingReads, fails bool) { u.addresses = fails },
	"servers":   func(u *failingReads, fails bool) { u.servers = fails },
}

// A change is applied by the next pass although the full pass that took it could not read the kernel.
func TestChangesSurviveFailedFull(t *testing.T) {
	for what, fail := range unreadable {
		b := newFixture(t)
		u := &failingReads{Kernel: b.kernel}
		b.engine.kernel = u
		fail(u, true)
		b.world.services[0].pods = [4]podState{3: ready}
		b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
		if _, err := b.engine.Full(context.Background()); !errors.Is(err, errUnreadable) {
			t.Fatalf("%s: error %v", what, err)
		}
		if !b.engine.Pending() {
			t.Errorf("%s could not be read, but nothing is pending", what)
		}
		fail(u, false)
		b.mustReport(b.engine.Sync(context.Background(), nil))
		other := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
		if got := serving(b.kernel.State(), vip); len(got) != 1 || got[0] != pod(0, 3, 8080) || len(serving(b.kernel.State(), other)) != 1 {
			t.Errorf("%s: after the next pass served by %v, the new Service by %v", what, got, serving(b.kernel.State(), other))
		}
	}
}

// A full pass that could not read the kernel is repeated, also if nothing has changed, and repairs then.
func TestFailedFullIsRepeated(t *testing.T) {
	for what, fail := range unreadable {
		b := newFixture(t)
		u := &failingReads{Kernel: b.kernel}
		b.engine.kernel = u
		if err := b.kernel.ApplyExternally(kernel.DeleteReal{Key: vip, Real: pod0}); err != nil {
			t.Fatal(err)
		}
		fail(u, true)
		_, errFull := b.engine.Full(context.Background())
		_, errAgain := b.engine.Sync(context.Background(), nil)
		if !errors.Is(errFull, errUnreadable) || !errors.Is(errAgain, errUnreadable) || !b.engine.Pending() {
			t.Errorf("%s unreadable: errors %v, then %v, pending %v", what, errFull, errAgain, b.engine.Pending())
		}
		fail(u, false)
		r := b.mustReport(b.engine.Sync(context.Background(), nil))
		if len(r.Repairs) != 1 || len(serving(b.kernel.State(), vip)) != 1 || b.engine.Pending() {
			t.Errorf("%s readable again: repairs %v, served by %v, pending %v", what, r.Repairs, serving(b.kernel.State(), vip), b.engine.Pending())
		}
		u.servers = true // a pass over changes reads no list
		b.mustReport(b.engine.Sync(context.Background(), nil))
	}
}

// Deleting the device removes all addresses. One failed operation on an address detects it, and the next pass
// restores all of them.
func TestDeviceDeleted(t *testing.T) {
	b := newFixture(t)
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	b.world.services[2] = service{exists: true, loadBalancer: true, secondPort: true, pods: [4]podState{ready}}
	b.mustReport(b.engine.Full(context.Background()))
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
	r := b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
	if len(r.Failures) != 1 {
		t.Fatalf("failures %v", r.Failures)
	}
	b.kernel.ClearFaults() // the device is recreated when the addresses are read
	b.mustReport(b.engine.Sync(context.Background(), nil))
	if want = append(want, sharedIP); !slices.Equal(b.kernel.State().Addresses(), want) || b.engine.Pending() {
		t.Errorf("bound are %v, want %v", b.kernel.State().Addresses(), want)
	}
}

func TestForeignVirtualServers(t *testing.T) {
	b := newFixture(t)
	theirs := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
	if err := b.kernel.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: theirs, Scheduler: "wlc"}}); err != nil {
		t.Fatal(err)
	}
	b.newOps()
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	sync := func() Report {
		return b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
	}
	r := sync()
	if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer || len(r.Failures) > 0 {
		t.Fatalf("found in a later pass: refused %v, failures %v", r.Refused, r.Failures)
	}
	if r = sync(); len(r.Refused) > 0 || b.engine.Pending() {
		t.Errorf("refused again: %v", r.Refused)
	}
	for _, e := range b.kernel.State().Elements() {
		if e.Key == theirs {
			t.Errorf("it is recorded as the proxier's: %v", e)
		}
	}
	if b.kernel.State().Bound(theirs.Addr) {
		t.Error("its address is bound without a virtual server of the proxier")
	}
	r = b.restart()
	if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer {
		t.Errorf("found at the start: refused %v", r.Refused)
	}
	if v, _ := b.kernel.State().Virtual(theirs); v.Scheduler != "wlc" || len(b.kernel.State().Reals(theirs)) > 0 {
		t.Error("the foreign virtual server was changed")
	}
	if err := b.kernel.ApplyExternally(kernel.DeleteVirtual{Key: theirs}); err != nil {
		t.Fatal(err)
	}
	b.mustReport(b.engine.Full(context.Background()))
	if got := serving(b.kernel.State(), theirs); len(got) != 1 {
		t.Errorf("after the foreign one was deleted, it is served by %v", got)
	}
}

// A crash at any operation leaves no record that makes a foreign virtual server the next process's own.
func TestCrashNextToForeignVirtualServer(t *testing.T) {
	theirs := kernel.Key{Addr: clusterIP(1), Protocol: kernel.TCP, Port: 80}
	for n := range 6 {
		b := newFixture(t)
		if err := b.kernel.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: theirs, Scheduler: "wlc"}}); err != nil {
			t.Fatal(err)
		}
		b.world.services[1] = service{exists: true, secondPort: true, pods: [4]podState{ready}}
		b.kernel.FailAt(n, fake.Crash)
		b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1)}))
		b.kernel.ClearFaults()
		b.restart()
		if v, _ := b.kernel.State().Virtual(theirs); v.Scheduler != "wlc" || len(b.kernel.State().Reals(theirs)) > 0 {
			t.Errorf("after a crash at operation %d it was taken over: %+v", n, v)
		}
		b.world.services[1].exists = false
		b.mustReport(b.engine.Full(context.Background()))
		b.drain()
		if _, exists := b.kernel.State().Virtual(theirs); !exists {
			t.Errorf("after a crash at operation %d and the deletion of the Service it was deleted", n)
		}
	}
}

// One virtual server of which every operation fails, even as an element of a larger transaction, does not affect the
// others, and is served once the kernel accepts it.
func TestOneFailingServiceAmongMany(t *testing.T) {
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
		t.Errorf("%d operations, want at most 6 per Service and 20", r.Operations)
	}
	k.ClearFaults()
	pass(e.Sync(context.Background(), nil))
	if n := served(); n != f.n || e.Pending() {
		t.Errorf("after the kernel accepted it %d are served, pending %v", n, e.Pending())
	}
}

// An unreadable virtual server, after a failure or before its creation, does not affect the others, and follows once
// it is readable.
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
	u := &failingReads{Kernel: k, keys: map[kernel.Key]bool{at(3): true, at(8): true}}
	e.kernel = u
	f.podRemoved = true
	e.unverified.keys[at(3)] = true // as after a failed operation
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
		t.Errorf("other virtual servers are served by %v, want three, and by %v, want four", got, serving(k.State(), at(9)))
	}
	if _, made := k.State().Virtual(at(8)); made {
		t.Error("a virtual server was created without a check for a foreign one")
	}
	u.keys = nil
	if r := pass(e.Sync(context.Background(), nil)); len(serving(k.State(), at(8))) != 4 || e.Pending() || len(r.Failures) > 0 {
		t.Errorf("once readable the new one is served by %v, failures %v", serving(k.State(), at(8)), r.Failures)
	}
}

// NodePorts follow the node's primary address; connections to the old address drain.
func TestNodePortFollowsNodeAddress(t *testing.T) {
	b := newFixture(t)
	b.world.services[0].nodePort = true
	b.setPods(ready, absent)
	at := func(i int) kernel.Key {
		return kernel.Key{Addr: nodeAddrs[i], Protocol: kernel.TCP, Port: nodePort(0, 80)}
	}
	b.kernel.SetConnections(at(0), pod0, 1, 0)
	b.world.address = 1
	b.mustReport(b.engine.Sync(context.Background(), nil))
	state := b.kernel.State()
	if w, _ := state.Weight(at(0), pod0); w != 0 || len(serving(state, at(1))) != 1 || b.kernel.CutConnections() > 0 {
		t.Errorf("the old address has weight %d, the new one is served by %v, %d cut", w, serving(state, at(1)), b.kernel.CutConnections())
	}
	b.kernel.SetConnections(at(0), pod0, 0, 0)
	b.drain()
	if _, left := state.Virtual(at(0)); left || len(state.Addresses()) != 1 {
		t.Errorf("the old virtual server exists: %v; bound are %v", left, state.Addresses())
	}
}

// unknownNode is a world whose Node is not known yet.
type unknownNode struct {
	*world
	known bool
}

func (l *unknownNode) NodeAddresses() []netip.Addr {
	if l.known {
		return l.world.NodeAddresses()
	}
	return nil
}

// A start without the Node serves NodePorts where the last process did; the others follow once the Node is known.
func TestStartWithUnknownNode(t *testing.T) {
	b := newFixture(t)
	b.world.services[0].nodePort = true
	b.setPods(ready, ready)
	b.world.services[1] = service{exists: true, nodePort: true, pods: [4]podState{2: ready}}
	at := func(svc, addr int) kernel.Key {
		return kernel.Key{Addr: nodeAddrs[addr], Protocol: kernel.TCP, Port: nodePort(svc, 80)}
	}
	b.kernel.SetConnections(at(0, 0), pod0, 1, 0)
	late := &unknownNode{world: b.world}
	b.engine = New(b.kernel, late, Options{Desired: desired.Options{Node: node, Scheduler: "rr", TerminatingFallback: true},
		Drain: limits, Now: func() time.Time { return b.now }})
	b.world.services[0].pods = [4]podState{2: ready, 3: unready}
	b.mustReport(b.engine.Full(context.Background()))
	served := func(when string, want ...netip.AddrPort) {
		t.Helper()
		if got := serving(b.kernel.State(), at(0, 0)); !slices.Equal(got, want) || b.kernel.CutConnections() > 0 {
			t.Errorf("%s: the NodePort is served by %v, want %v", when, got, want)
		}
	}
	served("after the start without one pod", pod0)
	b.mustReport(b.engine.Full(context.Background()))
	b.drain()
	served("after a reconciliation", pod0)
	b.world.services[0].pods[3] = ready
	b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(0)}))
	served("with another pod", pod0, pod(0, 3, 8080))
	late.known, b.world.address = true, 1
	b.mustReport(b.engine.Sync(context.Background(), nil))
	b.kernel.SetConnections(at(0, 0), pod0, 0, 0)
	b.drain()
	served("at an address that is no longer the Node's primary one")
	for svc, want := range []int{2, 1} {
		if got := serving(b.kernel.State(), at(svc, 1)); len(got) != want {
			t.Errorf("with the Node known, the NodePort of Service %d is served by %v", svc, got)
		}
	}
}

// A failure of one virtual server does not affect the others.
func TestFailureIsIsolated(t *testing.T) {
	b := newFixture(t)
	b.world.services[1] = service{exists: true, pods: [4]podState{ready}}
	b.world.services[2] = service{exists: true, pods: [4]podState{ready}}
	b.kernel.FailAt(1, fake.Fail) // the first virtual server; operation 0 changes sets
	r := b.mustReport(b.engine.Sync(context.Background(), []types.NamespacedName{name(1), name(2)}))
	key := func(i int) kernel.Key { return kernel.Key{Addr: clusterIP(i), Protocol: kernel.TCP, Port: 80} }
	if len(r.Failures) != 1 || len(serving(b.kernel.State(), key(2))) != 1 || b.kernel.State().Bound(clusterIP(1)) {
		t.Errorf("failures %v; the other one is served by %v; the failed one is bound: %v", r.Failures,
			serving(b.kernel.State(), key(2)), b.kernel.State().Bound(clusterIP(1)))
	}
	if !b.engine.Pending() {
		t.Error("nothing is pending")
	}
	b.mustReport(b.engine.Sync(context.Background(), nil))
	if len(serving(b.kernel.State(), key(1))) != 1 || b.engine.Pending() {
		t.Error("the second pass did not repair it")
	}
}

// An address is isolated before it is bound, even if its virtual server exists already: programs of the host would
// answer.
func TestAddressIsIsolatedBeforeBound(t *testing.T) {
	b := newFixture(t)
	b.kernel.FlushSets()
	if err := b.kernel.ApplyExternally(kernel.Unbind{Addr: vip.Addr}); err != nil {
		t.Fatal(err)
	}
	isolated := kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: vip.Addr}}
	b.kernel.FailAt(0, fake.Fail) // the change of sets
	b.mustReport(b.engine.Full(context.Background()))
	if b.kernel.State().Bound(vip.Addr) && !b.kernel.State().Has(isolated) {
		t.Error("the address is bound but not isolated")
	}
	b.mustReport(b.engine.Sync(context.Background(), nil))
	if !b.kernel.State().Bound(vip.Addr) || !b.kernel.State().Has(isolated) || b.engine.Pending() {
		t.Errorf("after the next pass: bound %v, isolated %v", b.kernel.State().Bound(vip.Addr), b.kernel.State().Has(isolated))
	}
}
