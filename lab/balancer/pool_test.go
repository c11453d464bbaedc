package balancer

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/topology"
	"pgregory.net/rapid"
)

func mustTake(t *testing.T, p *pool, want string) netip.Addr {
	t.Helper()
	addr, err := p.take("somebody")
	if err != nil || addr.String() != want {
		t.Fatalf("took %s, %v; want %s", addr, err, want)
	}
	return addr
}

func TestNewAddressesComeBeforeReleasedOnes(t *testing.T) {
	p := newPool(topology.ExternalCIDR)
	first := mustTake(t, p, "203.0.113.10")
	mustTake(t, p, "203.0.113.11")
	p.release(first)
	for i := 12; i <= 254; i++ {
		mustTake(t, p, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String())
	}
	mustTake(t, p, "203.0.113.10")
	if addr, err := p.take("late"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("an empty pool gave %s, %v", addr, err)
	}
	p.release(netip.MustParseAddr("203.0.113.200"))
	p.release(netip.MustParseAddr("203.0.113.100"))
	mustTake(t, p, "203.0.113.200")
	mustTake(t, p, "203.0.113.100")
}

func TestClaims(t *testing.T) {
	for _, c := range []struct{ wish, problem string }{
		{"203.0.113.10", ""}, {"203.0.113.254", ""}, {"203.0.113.77", "in use by default/other"},
		{"203.0.113.9", "not an external address"}, {"203.0.113.255", "not an external address"},
		{"203.0.114.10", "not an external address"}, {"2001:db8::1", "not an external address"}, {"web", "not an IP"},
	} {
		p := newPool(topology.ExternalCIDR)
		if _, err := p.claim("default/other", "203.0.113.77"); err != nil {
			t.Fatal(err)
		}
		addr, err := p.claim("default/web", c.wish)
		switch {
		case c.problem == "" && (err != nil || addr.String() != c.wish):
			t.Errorf("claim of %s gave %s, %v", c.wish, addr, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("claim of %s gave %s, %v; want an error with %q", c.wish, addr, err, c.problem)
		}
	}
}

// In any order of operations an address has at most one owner, and every free address can be allocated.
func TestNoAddressHasTwoOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, owned := newPool(topology.ExternalCIDR), map[netip.Addr]bool{}
		own := func(addr netip.Addr, err error) {
			if err == nil {
				if owned[addr] {
					t.Fatalf("%s was given out twice", addr)
				}
				owned[addr] = true
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			some := netip.AddrFrom4([4]byte{203, 0, 113, byte(rapid.IntRange(5, 255).Draw(t, "address"))})
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				own(p.take("taker"))
			case 1:
				own(p.claim("claimer", some.String()))
			case 2:
				p.release(some)
				delete(owned, some)
			}
		}
		for len(owned) < 245 {
			addr, err := p.take("rest")
			own(addr, err)
			if err != nil {
				t.Fatalf("%d of 245 addresses are in use and none is left: %v", len(owned), err)
			}
		}
	})
}
