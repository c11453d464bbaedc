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

// startEngine returns an engine after its first pass.
func startEngine(t *testing.T, k *fake.Kernel, w *world) (*Engine, Report) {
	t.Helper()
	e := New(k, w, Options{Desired: desired.Options{Node: node, Scheduler: "rr", IPv6: true}, Drain: limits, Now: func() time.Time { return time.Unix(0, 0) }})
	r, err := e.Full(context.Background())
	if err != nil || len(r.Failures) > 0 {
		t.Fatal(err, r.Failures)
	}
	return e, r
}

// deleteElements removes the elements that match.
func deleteElements(t *testing.T, k *fake.Kernel, match func(kernel.Element) bool) {
	t.Helper()
	elements := slices.DeleteFunc(k.State().Elements(), func(e kernel.Element) bool { return !match(e) })
	if err := k.ApplyExternally(kernel.ChangeSets{Remove: elements}); err != nil {
		t.Fatal(err)
	}
}

func isIPv4(e kernel.Element) bool  { return e.Key.Addr.Is4() }
func isIPv6(e kernel.Element) bool  { return e.Key.Addr.Is6() }
func anyFamily(kernel.Element) bool { return true }

// Another program deletes the proxier's tables while no process runs. The next process keeps all virtual servers,
// including those of NodePorts, whose address is the node's own.
func TestLostOwnershipRecordsBetweenProcesses(t *testing.T) {
	for what, lost := range map[string]func(kernel.Element) bool{"of IPv4": isIPv4, "of IPv6": isIPv6, "of both": anyFamily} {
		t.Run(what, func(t *testing.T) {
			k, w := fake.New(nodeAddrs...), &world{}
			w.services[0] = service{exists: true, nodePort: true, loadBalancer: true, dualStack: true, udpPort: true, pods: [4]podState{2: ready}}
			startEngine(t, k, w)
			for _, key := range k.State().Keys() {
				k.SetConnections(key, k.State().Reals(key)[0].Addr, 1, 0)
			}
			deleteElements(t, k, lost)
			w.services[0].pods = [4]podState{2: draining, 3: ready}
			if _, r := startEngine(t, k, w); len(r.Refused) > 0 {
				t.Errorf("refused %v", r.Refused)
			}
			for key, want := range w.contract() {
				if got := serving(k.State(), key); !slices.Equal(got, want.reals) {
					t.Errorf("%v is served by %v, want %v", key, got, want.reals)
				}
				if !slices.ContainsFunc(k.State().Elements(), func(e kernel.Element) bool { return e.Set.RecordsOwnership() && e.Key == key }) {
					t.Errorf("%v has no ownership record", key)
				}
			}
			for _, key := range k.State().Keys() {
				if key.Protocol.Drains() && len(k.State().Reals(key)) != 2 {
					t.Errorf("%v lost its draining real server: %v", key, k.State().Reals(key))
				}
			}
		})
	}
}

// Without ownership records, a foreign virtual server at a NodePort is not adopted: neither if its Service was not
// served before, as in the first start, nor if it differs from what the proxier creates.
func TestForeignNodePortServersWithoutRecords(t *testing.T) {
	theirs := kernel.Key{Addr: nodeAddrs[0], Protocol: kernel.TCP, Port: nodePort(0, 80)}
	for _, test := range []struct {
		what, scheduler string
		served          bool
	}{
		{"first start", "rr", false},
		{"other scheduler", "wlc", true},
	} {
		k, w := fake.New(nodeAddrs...), &world{}
		v := kernel.Virtual{Key: theirs, Scheduler: test.scheduler}
		if err := k.ApplyExternally(kernel.AddVirtual{Virtual: v}, kernel.AddReal{Key: theirs, Real: pod(2, 3, 8080), Weight: 1}); err != nil {
			t.Fatal(err)
		}
		w.services[0] = service{exists: true, nodePort: true, pods: [4]podState{2: ready}}
		w.services[1] = service{exists: true, pods: [4]podState{2: ready}}
		if test.served {
			startEngine(t, k, w)
			deleteElements(t, k, anyFamily)
		}
		e, r := startEngine(t, k, w)
		if now, exists := k.State().Virtual(theirs); !exists || now != v || len(k.State().Reals(theirs)) != 1 || e.Owns(theirs) {
			t.Errorf("%s: the foreign virtual server is now %+v %v, owned: %v", test.what, now, k.State().Reals(theirs), e.Owns(theirs))
		}
		if len(r.Refused) != 1 || r.Refused[0].Reason != desired.ForeignServer {
			t.Errorf("%s: refused %v", test.what, r.Refused)
		}
	}
}
