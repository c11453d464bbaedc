//go:build netns

package linux

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Binding many addresses in a batch has the same result as binding each, and binding a bound address is no error.
func TestBatchOfAddresses(t *testing.T) {
	var all []netip.Addr
	for i := range 2 * kernel.MaxBatch {
		all = append(all, netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(i%250 + 1)}))
	}
	all = append(all, netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("fd00:96::2"))
	read := func(bind func(a *addresses)) []netip.Addr {
		inNamespace(t)
		a := newTestAddresses(t)
		bind(a)
		found, err := a.read()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(found.Bound, netip.Addr.Compare)
		return found.Bound
	}
	want := read(func(a *addresses) {
		for _, addr := range all {
			if err := a.bind(addr); err != nil {
				t.Fatalf("%v: %v", addr, err)
			}
		}
	})
	got := read(func(a *addresses) {
		for range 2 { // the second time they are bound already
			for some := range slices.Chunk(all, kernel.MaxBatch) {
				if err := errors.Join(a.bindAll(some)...); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" || len(got) != len(all) {
		t.Errorf("%d addresses (-each +batch):\n%s", len(got), diff)
	}
}

// A failing request does not affect the others, and each error belongs to its own request.
func TestFailureInBatchOfAddresses(t *testing.T) {
	inNamespace(t)
	b, err := openBatches(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	h, err := openRoutes(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	a := &addresses{batches: b, routes: h}
	one, two := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("203.0.113.11")
	for _, c := range []struct {
		addrs []netip.Addr
		want  []error
	}{
		{[]netip.Addr{one, one, two}, []error{nil, unix.EEXIST, nil}},
		{[]netip.Addr{netip.MustParseAddr("203.0.113.12"), two}, []error{nil, unix.EEXIST}}, // the last request fails
		{[]netip.Addr{netip.MustParseAddr("203.0.113.13")}, []error{nil}},
	} {
		got, err := b.exchange(len(c.addrs), func(i int) { a.appendRequest(c.addrs[i]) })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, want %v", c.addrs, got, err, c.want)
		}
	}
	list, err := a.localRoutes()
	if err != nil || len(list) != 4 {
		t.Errorf("local routes %v, %v", list, err)
	}
}

// manyServers returns virtual servers of all kinds, and real servers of each.
func manyServers() (virtuals, reals []kernel.Op) {
	for i := range kernel.MaxBatch / 2 {
		v := kernel.Virtual{Key: kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}), Protocol: kernel.TCP, Port: uint16(80 + i)},
			Scheduler: []string{"rr", "sh", "mh"}[i%3], Affinity: time.Duration(i%2) * time.Hour}
		if i%4 == 3 {
			v.Key.Protocol = kernel.UDP
		}
		real := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}), 8080)
		if i%5 == 4 {
			v.Key.Addr, real = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i), 15: 1}), netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 15: byte(i)}), 8080)
		}
		virtuals = append(virtuals, kernel.AddVirtual{Virtual: v})
		reals = append(reals, kernel.AddReal{Key: v.Key, Real: real, Weight: 1 + i%2})
	}
	return virtuals, reals
}

// Adding many virtual and real servers in batches has the same result as adding each.
func TestBatchOfServers(t *testing.T) {
	virtuals, reals := manyServers()
	type server struct {
		Service ipvs.Service
		Reals   []*ipvs.Destination
	}
	read := func(apply func(k *Kernel, ops []kernel.Op)) map[kernel.Key]server {
		inNamespace(t)
		k := openIPVSKernel(t)
		apply(k, virtuals)
		apply(k, reals)
		all := map[kernel.Key]server{}
		list, err := call(k.ipvs.handle, "listing", ipvsHandle.GetServices)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			v, _ := fromService(s)
			d, err := call(k.ipvs.handle, "listing", func(t ipvsHandle) ([]*ipvs.Destination, error) { return t.GetDestinations(s) })
			if err != nil {
				t.Fatal(err)
			}
			all[v.Key] = server{*s, d}
		}
		return all
	}
	want := read(func(k *Kernel, ops []kernel.Op) { apply(t, k, ops...) })
	got := read(func(k *Kernel, ops []kernel.Op) {
		if err := errors.Join(k.ApplyAll(ops)...); err != nil {
			t.Fatal(err)
		}
	})
	if diff := cmp.Diff(want, got); diff != "" || len(got) != len(virtuals) {
		t.Errorf("%d virtual servers (-each +batch):\n%s", len(got), diff)
	}
}

// A foreign virtual server in a batch is reported by its error, and all others are created.
func TestFailureInBatchOfServers(t *testing.T) {
	inNamespace(t)
	k := openIPVSKernel(t)
	virtuals, reals := manyServers()
	apply(t, k, virtuals[3])
	for i, err := range k.ApplyAll(virtuals) {
		if i == 3 != errors.Is(err, kernel.ErrExists) || i != 3 && err != nil {
			t.Errorf("%v: %v", virtuals[i], err)
		}
	}
	apply(t, k, kernel.DeleteVirtual{Key: reals[len(reals)-1].(kernel.AddReal).Key})
	for i, err := range k.ApplyAll(reals) {
		if last := i == len(reals)-1; last != errors.Is(err, unix.ESRCH) || !last && err != nil {
			t.Errorf("%v: %v", reals[i], err)
		}
	}
	if all, err := k.Servers(); err != nil || len(all) != len(virtuals)-1 {
		t.Errorf("%d virtual servers, %v, want %d", len(all), err, len(virtuals)-1)
	}
}
