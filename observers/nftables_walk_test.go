//go:build linux

package observers

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/hitless/hitless/record"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakeRules is a ruleset of one table whose chain "base" translates destinations.
type fakeRules struct {
	chains map[string][][]expr.Any
	sets   map[string][]nftables.SetElement
}

func (f fakeRules) natChains(family nftables.TableFamily, _ nftables.ChainHook) ([]*nftables.Chain, error) {
	return []*nftables.Chain{{Name: "base", Table: &nftables.Table{Name: "t", Family: family}, Priority: nftables.ChainPriorityNATDest}}, nil
}

func (f fakeRules) rules(_ *nftables.Table, chain string) (all []*nftables.Rule, _ error) {
	for _, exprs := range f.chains[chain] {
		all = append(all, &nftables.Rule{Exprs: exprs})
	}
	return all, nil
}

func (f fakeRules) elements(_ *nftables.Table, set string) ([]nftables.SetElement, error) {
	return f.sets[set], nil
}

func verdict(kind expr.VerdictKind, chain string) *expr.Verdict {
	return &expr.Verdict{Kind: kind, Chain: chain}
}

// dnat loads an address and a port and translates to them.
func dnat(backend string) []expr.Any {
	b := netip.MustParseAddrPort(backend)
	return []expr.Any{&expr.Immediate{Register: 1, Data: b.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, b.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, RegAddrMin: 1, RegProtoMin: 2}}
}

// when prepends a comparison of a header field to a rule.
func when(base expr.PayloadBase, offset uint32, op expr.CmpOp, data []byte, rule ...expr.Any) []expr.Any {
	return append([]expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(data))},
		&expr.Cmp{Register: 1, Op: op, Data: data}}, rule...)
}

// whenFrom prepends a comparison of the source address with a prefix.
func whenFrom(source []byte, rule ...expr.Any) []expr.Any {
	return when(expr.PayloadBaseNetworkHeader, sourceV4, expr.CmpOpEq, source, rule...)
}

// randomGoto looks a random number below n up in the verdict map "random".
func randomGoto(n uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: 1, Modulus: n, Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SetName: "random", SourceRegister: 1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true}}
}

// verdictElement is an element of a verdict map in the encoding of the kernel (linux/netfilter/nf_tables.h).
func verdictElement(key uint32, kind expr.VerdictKind, chain string) nftables.SetElement {
	code := binary.BigEndian.AppendUint32([]byte{8, 0, 0, unix.NFTA_VERDICT_CODE}, uint32(int32(kind)))
	binary.NativeEndian.PutUint16(code, 8)
	binary.NativeEndian.PutUint16(code[2:], unix.NFTA_VERDICT_CODE)
	name := append([]byte(chain), 0)
	value := make([]byte, 4, 4+len(name)+3)
	binary.NativeEndian.PutUint16(value, uint16(4+len(name)))
	binary.NativeEndian.PutUint16(value[2:], unix.NFTA_VERDICT_CHAIN)
	value = append(value, name...)
	for len(value)%4 != 0 {
		value = append(value, 0)
	}
	return nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, key), Val: append(code, value...)}
}

// The backends are those on every possible path of a packet, and no others.
func TestBackendsOfEveryPossiblePath(t *testing.T) {
	a, b, c := dnat("10.0.0.1:1"), dnat("10.0.0.2:2"), dnat("10.0.0.3:3")
	undecided := &expr.Match{Name: "statistic", Info: &xt.Unknown{}}
	sets := map[string][]nftables.SetElement{"random": {verdictElement(0, expr.VerdictGoto, "a"), verdictElement(1, expr.VerdictGoto, "b")}}
	ab := func(base ...[]expr.Any) map[string][][]expr.Any {
		return map[string][][]expr.Any{"base": base, "a": {a}, "b": {b}, "empty": {}, "back": {{verdict(expr.VerdictReturn, "")}, b}}
	}
	for name, test := range map[string]struct {
		chains map[string][][]expr.Any
		want   string
	}{
		"no rule":                       {ab(), ""},
		"the first that surely matches": {ab(a, b), "10.0.0.1:1=1"},
		"one that may match, and the next": {ab(append([]expr.Any{undecided}, a...), b, c),
			"10.0.0.1:1=1,10.0.0.2:2=1"},
		"another source, sure":    {ab(whenFrom([]byte{10, 244, 0, 1}, a...), b), "10.0.0.2:2=1"},
		"the same range":          {ab(whenFrom([]byte{10, 200}, a...), b), "10.0.0.1:1=1"},
		"a source of the range":   {ab(whenFrom([]byte{10, 200, 3, 4}, a...), b), "10.0.0.1:1=1,10.0.0.2:2=1"},
		"a number for each":       {ab(randomGoto(2), c), "10.0.0.1:1=1,10.0.0.2:2=1"},
		"a number for which none": {ab(randomGoto(3), c), "10.0.0.1:1=1,10.0.0.2:2=1,10.0.0.3:3=1"},
		"a jump that comes back":  {ab([]expr.Any{verdict(expr.VerdictJump, "empty")}, a), "10.0.0.1:1=1"},
		"a goto does not":         {ab([]expr.Any{verdict(expr.VerdictGoto, "empty")}, a), ""},
		"a goto within a jump": {map[string][][]expr.Any{"base": {{verdict(expr.VerdictJump, "x")}, a}, "x": {{verdict(expr.VerdictGoto, "empty")}, b}},
			"10.0.0.1:1=1"},
		"a return":                    {ab([]expr.Any{verdict(expr.VerdictJump, "back")}, a), "10.0.0.1:1=1"},
		"dropped":                     {ab([]expr.Any{verdict(expr.VerdictDrop, "")}, a), ""},
		"dropped perhaps":             {ab([]expr.Any{undecided, verdict(expr.VerdictDrop, "")}, a), "10.0.0.1:1=1"},
		"rejected":                    {ab([]expr.Any{&expr.Reject{}}, a), ""},
		"counted and logged":          {ab(append([]expr.Any{&expr.Counter{}, &expr.Log{}}, a...), b), "10.0.0.1:1=1"},
		"a condition of a later kind": {ab(append([]expr.Any{&expr.Limit{}}, a...), b), "10.0.0.1:1=1,10.0.0.2:2=1"},
	} {
		s := ServiceAddress{Address: netip.MustParseAddrPort("203.0.113.10:80"), Clients: netip.MustParsePrefix("10.200.0.0/16")}
		found, err := possibleBackends(fakeRules{test.chains, sets}, []netip.Addr{netip.MustParseAddr("10.0.0.12")}, s)
		if got := record.NewBackendList(found).String(); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

// A translation that cannot be read is an error, not a missing backend.
func TestUnknownTranslationIsAnError(t *testing.T) {
	rules := fakeRules{chains: map[string][][]expr.Any{"base": {{&expr.Target{Name: "DNAT", Rev: 9, Info: &xt.Unknown{}}}}}}
	if found, err := possibleBackends(rules, []netip.Addr{netip.MustParseAddr("10.0.0.12")}, web); err == nil {
		t.Errorf("%v", found)
	}
}

// IPv6 has its own headers.
func TestBackendsOfIPv6(t *testing.T) {
	s := ServiceAddress{Address: netip.MustParseAddrPort("[2001:db8::10]:80"), UDP: true, Clients: netip.MustParsePrefix("2001:db8:1::/48")}
	pod := netip.MustParseAddrPort("[2001:db8:244::7]:8080")
	rule := when(expr.PayloadBaseNetworkHeader, targetV6, expr.CmpOpEq, s.Address.Addr().AsSlice(),
		when(expr.PayloadBaseNetworkHeader, sourceV6, expr.CmpOpNeq, netip.MustParseAddr("2001:db8:2::").AsSlice()[:6],
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Immediate{Register: 1, Data: pod.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, pod.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, RegAddrMin: 1, RegProtoMin: 2})...)
	found, err := possibleBackends(fakeRules{chains: map[string][][]expr.Any{"base": {rule}}}, []netip.Addr{netip.MustParseAddr("10.0.0.12")}, s)
	if got := record.NewBackendList(found).String(); err != nil || got != "[2001:db8:244::7]:8080=1" {
		t.Errorf("%q, %v", got, err)
	}
}

// A decided comparison of a value with unknown bytes holds for every value of those bytes.
func TestComparisonsWithUnknownBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 4
		digits := func(name string) []byte {
			return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x0f, 0xff}), n, n).Draw(t, name)
		}
		real, want, mask, xor := digits("real"), digits("want"), digits("mask"), digits("xor")
		value := knownBytes(real)
		for i := range value {
			if rapid.Bool().Draw(t, "unknown") {
				value[i] = unknown
			}
		}
		after := make([]byte, n)
		for i := range after {
			after[i] = real[i]&mask[i] ^ xor[i]
		}
		is := compare(applyMask(value, &expr.Bitwise{Mask: mask, Xor: xor}), &expr.Cmp{Op: expr.CmpOpEq, Data: want})
		if is != maybe && (is == yes) != (string(after) == string(want)) {
			t.Fatalf("%v masked is %v; its comparison with %v gives %d", real, after, want, is)
		}
	})
}

func FuzzParseVerdict(f *testing.F) {
	f.Add(verdictElement(1, expr.VerdictGoto, "chain").Val)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseVerdict(data) })
}
