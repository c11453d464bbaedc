package record

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

func TestFamilies(t *testing.T) {
	for f, want := range map[Family][]Family{"": {IPv4}, IPv4: {IPv4}, IPv6: {IPv6}, DualStack: {IPv4, IPv6}} {
		if got := f.Each(); !slices.Equal(got, want) || f.Primary() != want[0] {
			t.Errorf("%q has %v, want %v", f, got, want)
		}
	}
	both := []string{"", "no address", "192.0.2.1", "fd00::1", "fd00::2"}
	if a, has := IPv6.Among(both...); a != "fd00::1" || !has {
		t.Errorf("the first IPv6 address is %q, %t", a, has)
	}
	if a, has := IPv6.Among(both[:3]...); has {
		t.Errorf("%q is an IPv6 address", a)
	}
	if f := FamilyOf(netip.MustParseAddr("::ffff:192.0.2.1")); f != IPv4 {
		t.Errorf("an IPv4 address in IPv6 form is of %s", f)
	}
	if a, b := IPv4.Named("tcp-new"), IPv6.Named("tcp-new"); a != "tcp-new" || b == a {
		t.Errorf("the lanes of the two families are %q and %q", a, b)
	}
}

// The key of an IPv6 flow is what the kernel hashes: both addresses, and each port in a word of its own.
func TestFlowHashOfIPv6(t *testing.T) {
	source, target := netip.MustParseAddrPort("[2001:db8:200::7]:40000"), netip.MustParseAddrPort("[2001:db8:203::a]:80")
	var key []byte
	key = append(append(key, source.Addr().AsSlice()...), target.Addr().AsSlice()...)
	key = append(binary.BigEndian.AppendUint16(key, source.Port()), 0, 0)
	key = append(binary.BigEndian.AppendUint16(key, target.Port()), 0, 0)
	if got, want := FlowHash(source, target, 7), jhash(key, 7); len(key) != 40 || got != want {
		t.Errorf("the hash is %x, want %x", got, want)
	}
	counts := [3]int{}
	for port := range 3000 {
		counts[PickNode(netip.AddrPortFrom(source.Addr(), uint16(1024+port)), target, 7, 3)]++
	}
	for _, n := range counts {
		if n < 850 || n > 1150 {
			t.Errorf("3000 flows go to three nodes as %v", counts)
		}
	}
}

// A flow has a node in its own family only.
func TestPathOfIPv6(t *testing.T) {
	p := NewPaths()
	seed := uint32(7)
	six := netip.MustParseAddr("2001:db8:203::a")
	p.AddMembers(0, Membership{Service: "default/web", Address: six, Port: 80, Protocol: "tcp", Nodes: []string{"node-1", "node-2"}, Policy: BalancerRehash, Seed: &seed})
	l := &DeclaredLane{Lane: Lane{Protocol: ProtocolNew}, Address: netip.AddrPortFrom(six, 80)}
	a := &Attempt{Start: 1, Source: netip.MustParseAddrPort("[2001:db8:200::7]:40000")}
	if path := p.Path(l, a); path.Node == "" {
		t.Error("an IPv6 flow has no node")
	}
	a.Source = netip.MustParseAddrPort("10.200.0.7:40000")
	if path := p.Path(l, a); path.Node != "" {
		t.Errorf("an IPv4 source at an IPv6 address goes over %s", path.Node)
	}
}
