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

// started is a process that has done its first pass.
func started(t *testing.T, k *fake.Kernel, w *world) (*Engine, Report) {
	t.Helper()
	e := New(k, w, Options{Desired: desired.Options{Node: node, Scheduler: "rr", IPv6: true}, Drain: limits, Now: func() time.Time { return time.Unix(0, 0) }})
	r, err := e.Full(context.Background())
	if err != nil || len(r.Failures) > 0 {
		t.Fatal(err, r.Failures)
	}
	return e, r
}

// loseRecord takes all elements away, of one family or of both.
func loseRecord(t *testing.T, k *fake.Kernel, lost func(kernel.Element) bool) {
	t.Helper()
	elements := slices.DeleteFunc(k.State().Elements(), func(e kernel.Element) bool { return !lost(e) })
	if err := k.ApplyExternally(kernel.ChangeSets{Remove: elements}); err != nil {
		t.Fatal(err)
	}
}

func onIPv4(e kernel.Element) bool { return e.Key.Addr.Is4() }
func onIPv6(e kernel.Element) bool { return e.Key.Addr.Is6() }
func on4And6(kernel.Element) bool  { return true }

// Somebody deletes the proxier's tables, or one of them, while no process runs: the next one goes on with all virtual servers,
// those of NodePorts too, whose address stands on no device of the proxier's.
func TestRecordLostBetweenProcesses(t *testing.T) {
	for what, lost := range map[string]func(kernel.Element) bool{"of IPv4": onIPv4, "of IPv6": onIPv6, "of both": on4And6} {
		t.Run(what, func(t *testing.T) {
			k, w := fake.New(nodeAddrs...), &world{}
			w.services[0] = service{exists: true, nodePort: true, balanced: true, dual: true, udpPort: true, pods: [4]podState{2: ready}}
			started(t, k, w)
			for _, key := range k.State().Keys() {
				k.SetConnections(key, k.State().Reals(key)[0].Addr, 1, 0)
			}
			loseRecord(t, k, lost)
			w.services[0].pods = [4]podState{2: draining, 3: ready}
			if _, r := started(t, k, w); len(r.Refused) > 0 {
				t.Errorf("refused %v", r.Refused)
			}
			for key, want := range w.contract() {
				if got := serving(k.State(), key); !slices.Equal(got, want.reals) {
					t.Errorf("%v is served by %v, want %v", key, got, want.reals)
				}
				if !slices.ContainsFunc(k.State().Elements(), func(e kernel.Element) bool { return e.Set.RecordsOwnership() && e.Key == key }) {
					t.Errorf("%v is not on record", key)
				}
			}
			for _, key := range k.State().Keys() {
				if key.Protocol.Drains() && len(k.State().Reals(key)) != 2 {
					t.Errorf("%v lost what drains: %v", key, k.State().Reals(key))
				}
			}
		})
	}
}

// Without a record it takes no virtual server at a NodePort that an earlier process cannot have made: none where its Service was
// served by nobody, as at the first start, and none that looks otherwise.
func TestNodePortsOfOthersWithoutARecord(t *testing.T) {
	theirs := kernel.Key{Addr: nodeAddrs[0], Protocol: kernel.TCP, Port: nodePort(0, 80)}
	for _, test := range []struct {
		what, scheduler string
		served          bool
	}{
		{"at the first start", "rr", false},
		{"with a scheduler of its own", "wlc", true},
	} {
		k, w := fake.New(nodeAddrs...), &world{}
		v := kernel.Virtual{Key: theirs, Scheduler: test.scheduler}
		if err := k.ApplyExternally(kernel.AddVirtual{Virtual: v}, kernel.AddReal{Key: theirs, Real: pod(2, 3, 8080), Weight: 1}); err != nil {
			t.Fatal(err)
		}
		w.services[0] = service{exists: true, nodePort: true, pods: [4]podState{2: ready}}
		w.services[1] = service{exists: true, pods: [4]podState{2: ready}}
		if test.served {
			started(t, k, w)
			loseRecord(t, k, on4And6)
		}
		e, r := started(t, k, w)
		if now, exists := k.State().Virtual(theirs); !exists || now != v || len(k.State().Reals(theirs)) != 1 || e.Has(theirs) {
			t.Errorf("%s: somebody else's became %+v %v, taken: %v", test.what, now, k.State().Reals(theirs), e.Has(theirs))
		}
		if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer {
			t.Errorf("%s: refused %v", test.what, r.Refused)
		}
	}
}
