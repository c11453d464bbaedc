package kubelet

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func take(t *testing.T, a *addresses) string {
	t.Helper()
	addr, err := a.take()
	if err != nil {
		t.Fatal(err)
	}
	return addr.String()
}

func TestReleasedAddressesAreNotReusedSoon(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.244.3.0/29")) // .2 to .6
	var got []string
	for range 3 {
		got = append(got, take(t, a))
	}
	a.release(netip.MustParseAddr("10.244.3.2"))
	for range 3 {
		got = append(got, take(t, a))
	}
	want := []string{"10.244.3.2", "10.244.3.3", "10.244.3.4", "10.244.3.5", "10.244.3.6", "10.244.3.2"}
	if !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	if addr, err := a.take(); err == nil {
		t.Errorf("a full range gave %s", addr)
	}
}

func TestReserve(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.244.3.0/24"))
	for _, bad := range []string{"10.244.3.0", "10.244.3.1", "10.244.3.255", "10.244.4.7", "::1"} {
		if err := a.reserve(t.Context(), netip.MustParseAddr(bad)); err == nil {
			t.Errorf("%s could be reserved", bad)
		}
	}
	wanted := netip.MustParseAddr("10.244.3.2")
	if err := a.reserve(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	if got := take(t, a); got != "10.244.3.3" {
		t.Errorf("a reserved address was skipped to %s, want 10.244.3.3", got)
	}
}

func TestReserveWaitsForTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses(netip.MustParsePrefix("10.244.3.0/24"))
		wanted := netip.MustParseAddr("10.244.3.2")
		take(t, a)
		time.AfterFunc(time.Minute, func() { a.release(wanted) })
		begin := time.Now()
		if err := a.reserve(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("reserved after %s, want %s", waited, time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.reserve(ctx, wanted); err == nil {
			t.Error("a taken address was reserved")
		}
	})
}

// In any order of requests no two pods share an address, and the same requests get the same addresses.
func TestAddressesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := netip.PrefixFrom(netip.MustParseAddr("10.244.9.0"), rapid.IntRange(22, 29).Draw(t, "bits"))
		a, twin := newAddresses(cidr), newAddresses(cidr)
		var held []netip.Addr
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				a.release(held[i])
				twin.release(held[i])
				held = slices.Delete(held, i, i+1)
				continue
			}
			addr, err := a.take()
			same, errTwin := twin.take()
			if addr != same || (err == nil) != (errTwin == nil) {
				t.Fatalf("the same requests gave %s and %s", addr, same)
			}
			if err != nil {
				continue
			}
			if slices.Contains(held, addr) || !cidr.Contains(addr) {
				t.Fatalf("%s given; held: %v", addr, held)
			}
			held = append(held, addr)
		}
	})
}
