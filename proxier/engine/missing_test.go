package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// shortList is a kernel whose next list of virtual servers lacks one, as on Linux while another program deletes one.
type shortList struct {
	kernel.Kernel
	omit  kernel.Key
	reads int // reads of single virtual servers
}

func (s *shortList) Servers() ([]kernel.Server, error) {
	all, err := s.Kernel.Servers()
	all = slices.DeleteFunc(all, func(v kernel.Server) bool { return v.Key == s.omit })
	s.omit = kernel.Key{}
	return all, err
}

func (s *shortList) Server(k kernel.Key) (kernel.Server, bool, error) {
	s.reads++
	return s.Kernel.Server(k)
}

// A full pass keeps an own virtual server that the list lacks, with its connections, in a running process and in a new
// one. A complete list needs no further reads.
func TestListLacksOwnServer(t *testing.T) {
	for _, test := range []struct {
		what      string
		restarted bool
		draining  bool
	}{{"wanted", false, false}, {"wanted, new process", true, false}, {"draining", false, true}, {"draining, new process", true, true}} {
		t.Run(test.what, func(t *testing.T) {
			b := newFixture(t)
			b.kernel.SetConnections(vip, pod0, 8, 0)
			if test.draining {
				b.world.services[0].exists = false
				b.mustReport(b.engine.Sync(context.Background(), b.engine.allNames()))
			}
			want := b.kernel.State().Elements()
			k := &shortList{Kernel: b.kernel, omit: vip}
			if b.engine.kernel = k; test.restarted {
				b.engine = New(k, b.world, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Now: func() time.Time { return b.now }})
			}
			b.newOps()
			r := b.mustReport(b.engine.Full(context.Background()))
			b.expectOps("pass with the short list")
			if len(r.Refused)+len(r.Failures) > 0 || !b.engine.Owns(vip) || !slices.Equal(b.kernel.State().Elements(), want) {
				t.Errorf("refused %v, failures %v, owned: %v, elements %v, want %v", r.Refused, r.Failures, b.engine.Owns(vip), b.kernel.State().Elements(), want)
			}
			if drains := b.engine.Draining() == 1; drains != test.draining {
				t.Errorf("draining: %v", drains)
			}
			k.reads = 0
			if b.mustReport(b.engine.Full(context.Background())); k.reads > 0 {
				t.Errorf("with a complete list: %d reads of single virtual servers", k.reads)
			}
		})
	}
}

// A virtual server that the list lacks and that is unreadable keeps its address, its records and its connections, and
// the other virtual servers are updated.
func TestListLacksUnreadableServer(t *testing.T) {
	for _, draining := range []bool{false, true} {
		b := newFixture(t)
		b.kernel.SetConnections(vip, pod0, 8, 0)
		if draining {
			b.world.services[0].exists = false
			b.mustReport(b.engine.Sync(context.Background(), b.engine.allNames()))
		}
		b.world.services[1] = service{exists: true, pods: [4]podState{2: ready}}
		want := b.kernel.State().Elements()
		u := &failingReads{Kernel: &shortList{Kernel: b.kernel, omit: vip}, keys: map[kernel.Key]bool{vip: true}}
		e := New(u, b.world, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Now: func() time.Time { return b.now }})
		r := b.mustReport(e.Full(context.Background()))
		if len(r.Failures) != 1 || !e.Pending() {
			t.Errorf("draining %v: failures %v, pending %v", draining, r.Failures, e.Pending())
		}
		lost := slices.ContainsFunc(want, func(el kernel.Element) bool { return !b.kernel.State().Has(el) })
		if lost || !b.kernel.State().Bound(vip.Addr) || b.kernel.CutConnections() > 0 {
			t.Errorf("draining %v: elements %v, want %v; bound %v", draining, b.kernel.State().Elements(), want, b.kernel.State().Addresses())
		}
		if other := key(clusterIP(1).String(), 80); len(serving(b.kernel.State(), other)) != 1 {
			t.Errorf("draining %v: another Service is not served", draining)
		}
		u.keys = nil
		if r = b.mustReport(e.Sync(context.Background(), nil)); len(r.Failures)+len(r.Refused) > 0 || e.Pending() || !e.Owns(vip) || (e.Draining() == 1) != draining {
			t.Errorf("draining %v, once readable: failures %v, refused %v, owned: %v, draining %d", draining, r.Failures, r.Refused, e.Owns(vip), e.Draining())
		}
	}
}

// The creation of a virtual server fails because it exists. One that was recorded before is the proxier's own.
func TestRecordedServerExistsAlready(t *testing.T) {
	b := newFixture(t)
	b.world.services[1] = service{exists: true, pods: [4]podState{2: ready}}
	other := key(clusterIP(1).String(), 80)
	b.kernel.FailAt(1, fake.Fail) // operation 0 records it
	b.mustReport(b.engine.Sync(context.Background(), b.world.Names()))
	b.engine.unverified.keys = map[kernel.Key]bool{}
	if err := b.kernel.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: other, Scheduler: "rr"}}); err != nil {
		t.Fatal(err)
	}
	r := b.mustReport(b.engine.Sync(context.Background(), nil))
	if len(r.Refused) > 0 || len(r.Failures) != 1 {
		t.Errorf("refused %v, failures %v", r.Refused, r.Failures)
	}
	b.mustReport(b.engine.Sync(context.Background(), nil))
	if !b.engine.Owns(other) || b.engine.Pending() || len(serving(b.kernel.State(), other)) != 1 {
		t.Errorf("owned: %v, served by %v", b.engine.Owns(other), serving(b.kernel.State(), other))
	}
}

// With Adopt a virtual server of another proxy that the list lacks is taken over by the next pass, with its
// connections.
func TestAdoptServerThatListLacks(t *testing.T) {
	for _, failing := range []int{-1, 0} { // -1: no operation fails; 0: the change of sets
		k, w := fake.New(nodeAddrs...), &world{}
		w.services[0] = service{exists: true, pods: [4]podState{2: ready}}
		if err := k.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: vip, Scheduler: "wlc"}}, kernel.AddReal{Key: vip, Real: pod0, Weight: 1}); err != nil {
			t.Fatal(err)
		}
		k.SetConnections(vip, pod0, 8, 0)
		if failing >= 0 {
			k.FailAt(failing, fake.Fail)
		}
		e := New(&shortList{Kernel: k, omit: vip}, w, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Adopt: true})
		r, err := e.Full(context.Background())
		if err != nil || len(r.Failures) != 1 || len(r.Refused) > 0 {
			t.Fatalf("error %v, failures %v, refused %v", err, r.Failures, r.Refused)
		}
		if r, err = e.Sync(context.Background(), nil); err != nil || len(r.Failures)+len(r.Refused) > 0 {
			t.Fatalf("error %v, failures %v, refused %v", err, r.Failures, r.Refused)
		}
		v, _ := k.State().Virtual(vip)
		recorded := k.State().Has(kernel.Element{Set: kernel.OffCluster, Key: vip})
		if !e.Owns(vip) || !recorded || v.Scheduler != "rr" || !k.State().Bound(vip.Addr) || k.CutConnections() > 0 {
			t.Errorf("owned: %v, recorded: %v, scheduler %s, %d connections cut", e.Owns(vip), recorded, v.Scheduler, k.CutConnections())
		}
	}
}
