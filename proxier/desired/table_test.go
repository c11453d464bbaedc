package desired

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/proxier/kernel"
)

func claimingService(name string, created int64, origin Origin, addrs ...string) Service {
	s := Service{Name: types.NamespacedName{Namespace: "a", Name: name}, Created: time.Unix(created, 0)}
	for _, a := range addrs {
		s.Virtuals = append(s.Virtuals, Virtual{Service: s.Name, Origin: origin,
			Virtual: kernel.Virtual{Key: keyAt(a)}, Hairpin: []netip.Addr{netip.MustParseAddr("10.244.1.1")}})
	}
	return s
}

func keyAt(addr string) kernel.Key {
	return kernel.Key{Addr: netip.MustParseAddr(addr), Protocol: kernel.TCP, Port: 80}
}

func TestAddressConflicts(t *testing.T) {
	const shared = "10.96.0.1"
	for _, test := range []struct {
		name     string
		one, two Service
	}{
		{"a younger cluster IP before an external IP", claimingService("x", 9, FromClusterIP, shared), claimingService("a", 1, FromExternalIP, shared)},
		{"a load balancer address before an external IP", claimingService("x", 9, FromLoadBalancer, shared), claimingService("a", 1, FromExternalIP, shared)},
		{"the older Service wins", claimingService("x", 1, FromExternalIP, shared), claimingService("a", 2, FromExternalIP, shared)},
		{"at equal age the first by name", claimingService("a", 1, FromExternalIP, shared), claimingService("b", 1, FromExternalIP, shared)},
	} {
		for _, order := range [][2]Service{{test.one, test.two}, {test.two, test.one}} {
			table := NewTable()
			table.Set(order[0])
			change := table.Set(order[1])
			if got, _ := table.Get(keyAt(shared)); got.Service != test.one.Name {
				t.Errorf("%s: owner is %v, want %v", test.name, got.Service, test.one.Name)
			}
			if len(change.Lost) != 1 || change.Lost[0].Service != test.two.Name || change.Lost[0].Reason != AddressTaken {
				t.Errorf("%s: lost %v, want one claim of %v", test.name, change.Lost, test.two.Name)
			}
			if change := table.Set(Service{Name: test.one.Name}); len(change.Keys) != 1 {
				t.Errorf("%s: changed after the winner left: %v", test.name, change.Keys)
			}
			if got, _ := table.Get(keyAt(shared)); got.Service != test.two.Name {
				t.Errorf("%s: owner after the winner left is %v", test.name, got.Service)
			}
		}
	}
}

func TestSetReturnsChangedKeysOnly(t *testing.T) {
	table := NewTable()
	s := claimingService("a", 1, FromClusterIP, "10.96.0.1", "10.96.0.2")
	if change := table.Set(s); len(change.Keys) != 2 || len(change.Shared) != 1 {
		t.Errorf("new: %v", change)
	}
	again := claimingService("a", 1, FromClusterIP, "10.96.0.1", "10.96.0.2")
	if change := table.Set(again); len(change.Keys) != 0 || len(change.Shared) != 0 {
		t.Errorf("unchanged: %v", change)
	}
	again.Virtuals = append([]Virtual(nil), again.Virtuals...)
	again.Virtuals[1].Drop = true
	if diff := cmp.Diff([]string{"10.96.0.2:80/tcp"}, keyStrings(table.Set(again).Keys)); diff != "" {
		t.Errorf("one of two changed (-want +got):\n%s", diff)
	}
}

func keyStrings(keys []kernel.Key) []string {
	var all []string
	for _, k := range keys {
		all = append(all, k.String())
	}
	return all
}

// The table depends on the last state of each Service only.
func TestTableDoesNotDependOnHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, last := NewTable(), map[string]Service{}
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			addrs := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.2", "10.96.0.3"}), 0, 3, rapid.ID).Draw(t, "addrs")
			last[name] = claimingService(name, rapid.Int64Range(1, 2).Draw(t, "created"), Origin(rapid.IntRange(0, 2).Draw(t, "origin")), addrs...)
			table.Set(last[name])
		}
		fresh := NewTable()
		for _, name := range names {
			if s, ok := last[name]; ok {
				fresh.Set(s)
			}
		}
		if diff := cmp.Diff(keyStrings(fresh.Keys()), keyStrings(table.Keys())); diff != "" {
			t.Fatalf("keys (-fresh +old):\n%s", diff)
		}
		for _, k := range fresh.Keys() {
			a, _ := fresh.Get(k)
			b, _ := table.Get(k)
			if !a.equal(&b) {
				t.Fatalf("%v is %v in a fresh table and %v in the old one", k, a, b)
			}
		}
		if !slices.Equal(fresh.Shared(), table.Shared()) {
			t.Fatalf("shared elements %v in a fresh table, %v in the old one", fresh.Shared(), table.Shared())
		}
	})
}
