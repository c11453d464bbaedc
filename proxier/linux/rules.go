package linux

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/hitless/hitless/proxier/kernel"
)

// masqueradeBit of the packet mark says that a packet is to be masqueraded. It is the bit that kube-proxy and the
// kubelet have always used for it.
const masqueradeBit = 0x4000

// Registers of 32 bits (NFT_REG32_00 and after); the key of a set is put together in several of them.
const (
	register0 = 8
	register1 = 9
	register2 = 10
)

// Offsets in the IPv4 and the TCP or UDP header.
const (
	sourceAddress      = 12
	destinationAddress = 16
	destinationPort    = 2
)

type ruleChain struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

// chains returns the ruleset:
//
//	chain prerouting  { hook prerouting priority mangle
//	    ct state new ip daddr . meta l4proto . th dport @drop drop
//	    ip daddr . meta l4proto . th dport @masquerade meta mark set mark or 0x4000
//	    [ip saddr != CIDR] … @off-cluster meta mark set mark or 0x4000 }
//	chain output      { hook output priority mangle: the same, and all three sets }
//	chain postrouting { type nat hook postrouting priority srcnat
//	    meta mark and 0x4000 != 0 meta mark set mark and not 0x4000 masquerade fully-random
//	    ip saddr . ip daddr @hairpin masquerade fully-random }
//
// Marks are set before IPVS, which works at the end of input and in output. What a node sends to one of its own virtual
// addresses has that address as its source, so it is masqueraded always. Only new connections are dropped: established
// ones may still drain. The conntrack expressions stay for the life of the table, so conntrack stays hooked.
//
// Keeping virtual addresses from answering on ports of the host (kubernetes#72236) will be a chain of hook input here.
func (f *filter) chains() []ruleChain {
	prerouting := [][]expr.Any{f.drop(), f.mark(kernel.Masquerade)}
	if f.options.MasqueradeAll {
		prerouting = append(prerouting, f.mark(kernel.OffCluster))
	} else if outside := notFrom(f.options.ClusterCIDRs); len(outside) > 0 {
		prerouting = append(prerouting, append(outside, f.mark(kernel.OffCluster)...))
	}
	output := [][]expr.Any{f.drop(), f.mark(kernel.Masquerade), f.mark(kernel.OffCluster), f.mark(kernel.FromNode)}
	return []ruleChain{
		{f.chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle), prerouting},
		{f.chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityMangle), output},
		{f.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			[][]expr.Any{masqueradeMarked(), f.masqueradeHairpin()}},
	}
}

func (f *filter) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Name: name, Table: f.table, Type: kind, Hooknum: hook, Priority: priority, Policy: &accept}
}

// to matches packets to the elements of a set of ports.
func (f *filter) to(set kernel.Set) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: destinationAddress, Len: 4},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register1},
		&expr.Payload{DestRegister: register2, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
		&expr.Lookup{SourceRegister: register0, SetName: string(set)},
	}
}

func (f *filter) mark(set kernel.Set) []expr.Any { return append(f.to(set), changeMark(true)...) }

// changeMark sets or clears the masquerade bit and leaves the others.
func changeMark(set bool) []expr.Any {
	xor := uint32(0)
	if set {
		xor = masqueradeBit
	}
	mask := ^uint32(masqueradeBit)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register0},
		&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register0},
	}
}

func (f *filter) drop() []expr.Any {
	isNew := []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register0}}
	isNew = append(isNew, anyBit(expr.CtStateBitNEW)...)
	return append(append(isNew, f.to(kernel.Drop)...), &expr.Verdict{Kind: expr.VerdictDrop})
}

// anyBit goes on when the bits are set in the first register.
func anyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: make([]byte, 4)},
	}
}

// notFrom goes on when the source is in none of the prefixes of IPv4.
func notFrom(prefixes []netip.Prefix) []expr.Any {
	var match []expr.Any
	for _, p := range prefixes {
		if !p.Addr().Is4() {
			continue
		}
		base := p.Masked().Addr().As4()
		mask := ^uint32(0) << (32 - p.Bits())
		if p.Bits() == 0 {
			mask = 0
		}
		match = append(match,
			&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: sourceAddress, Len: 4},
			&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
				Mask: binaryutil.BigEndian.PutUint32(mask), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: base[:]})
	}
	return match
}

// masqueradeMarked clears the mark, lest a tunnel's outer packet is masqueraded again.
func masqueradeMarked() []expr.Any {
	rule := []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register0}}
	rule = append(rule, anyBit(masqueradeBit)...)
	return append(append(rule, changeMark(false)...), &expr.Masq{FullyRandom: true})
}

// masqueradeHairpin is for a pod that was given itself: it would answer itself, past the node.
func (f *filter) masqueradeHairpin() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: sourceAddress, Len: 4},
		&expr.Payload{DestRegister: register1, Base: expr.PayloadBaseNetworkHeader, Offset: destinationAddress, Len: 4},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Hairpin)},
		&expr.Masq{FullyRandom: true},
	}
}
