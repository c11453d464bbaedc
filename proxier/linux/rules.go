package linux

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/hitless/hitless/proxier/kernel"
)

// masqueradeBit of the packet mark says that a packet is to be masqueraded. It is the bit that kube-proxy and the
// kubelet have always used for it.
const masqueradeBit = 0x4000

// register0 is the first register of 32 bits (NFT_REG32_00); the key of a set is put together in it and those after it.
const register0 = 8

// destinationPort is its offset in the header of TCP, UDP and SCTP.
const destinationPort = 2

type ruleChain struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

// chains returns the ruleset of a family:
//
//	chain prerouting  { hook prerouting priority mangle
//	    ct state new ip daddr . meta l4proto . th dport @drop drop
//	    ct state new … @restricted ip daddr . meta l4proto . th dport . ip saddr != @allowed drop
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
func (f *filter) chains(of family) []ruleChain {
	newOnes := [][]expr.Any{append(of.newTo(kernel.Drop), drop), append(append(of.newTo(kernel.Restricted), of.notAllowed()...), drop)}
	prerouting := append(slices.Clone(newOnes), of.mark(kernel.Masquerade))
	if f.options.MasqueradeAll {
		prerouting = append(prerouting, of.mark(kernel.OffCluster))
	} else if outside := of.notFrom(f.options.ClusterCIDRs); len(outside) > 0 {
		prerouting = append(prerouting, append(outside, of.mark(kernel.OffCluster)...))
	}
	output := append(newOnes, of.mark(kernel.Masquerade), of.mark(kernel.OffCluster), of.mark(kernel.FromNode))
	return []ruleChain{
		{of.chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle), prerouting},
		{of.chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityMangle), output},
		{of.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			[][]expr.Any{masqueradeMarked(), of.masqueradeHairpin()}},
	}
}

func (f family) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Name: name, Table: f.table, Type: kind, Hooknum: hook, Priority: priority, Policy: &accept}
}

// destined loads address, protocol and port of the destination, and returns the next free register.
func (f family) destined() ([]expr.Any, uint32) {
	next := register0 + f.addr.Bytes/4
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addr.Bytes},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
	}, next + 2
}

// to matches packets to the elements of a set of ports.
func (f family) to(set kernel.Set) []expr.Any {
	load, _ := f.destined()
	return append(load, &expr.Lookup{SourceRegister: register0, SetName: string(set)})
}

func (f family) mark(set kernel.Set) []expr.Any { return append(f.to(set), changeMark(true)...) }

// notAllowed goes on when no range of clients has the source.
func (f family) notAllowed() []expr.Any {
	load, next := f.destined()
	return append(load, &expr.Payload{DestRegister: next, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addr.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Allowed), Invert: true})
}

func (f family) mask(bits int) []byte { return net.CIDRMask(bits, f.bits()) }

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

var drop = &expr.Verdict{Kind: expr.VerdictDrop}

// newTo matches packets that begin something at the elements of a set.
func (f family) newTo(set kernel.Set) []expr.Any {
	isNew := []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register0}}
	isNew = append(isNew, anyBit(expr.CtStateBitNEW)...)
	return append(isNew, f.to(set)...)
}

// anyBit goes on when the bits are set in the first register.
func anyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: make([]byte, 4)},
	}
}

// notFrom goes on when the source is in none of the prefixes of the family.
func (f family) notFrom(prefixes []netip.Prefix) []expr.Any {
	var match []expr.Any
	for _, p := range prefixes {
		if !f.of(p.Addr()) {
			continue
		}
		match = append(match,
			&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addr.Bytes},
			&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: f.addr.Bytes,
				Mask: f.mask(p.Bits()), Xor: make([]byte, f.addr.Bytes)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: p.Masked().Addr().AsSlice()})
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
func (f family) masqueradeHairpin() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addr.Bytes},
		&expr.Payload{DestRegister: register0 + f.addr.Bytes/4, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addr.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Hairpin)},
		&expr.Masq{FullyRandom: true},
	}
}
