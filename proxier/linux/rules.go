package linux

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

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
//	    [ip saddr != CIDR | iifname != BRIDGE | iifname != PREFIX*] … @off-cluster meta mark set mark or 0x4000 }
//	chain output      { hook output priority mangle: the same, and all three sets }
//	chain postrouting { type nat hook postrouting priority srcnat
//	    meta mark and 0x4000 != 0 meta mark set mark and not 0x4000 masquerade fully-random
//	    ip saddr . ip daddr @hairpin masquerade fully-random }
//	chain input       { hook input priority srcnat + 1
//	    ct state new ip daddr @isolated ip daddr . meta l4proto . th dport @health accept
//	    [ct state new ip daddr @isolated meta l4proto tcp th dport HEALTHZ accept]
//	    ct state new ip daddr @isolated meta l4proto tcp reject with tcp reset
//	    ct state new ip daddr @isolated meta l4proto != icmp reject }
//
// Marks are set before IPVS, which works at the end of input and in output. What a node sends to one of its own virtual
// addresses has that address as its source, so it is masqueraded always. Only new connections are dropped: established
// ones may still drain. The conntrack expressions stay for the life of the table, so conntrack stays hooked.
//
// The chain input keeps virtual addresses from answering on ports of the host (kubernetes#72236). It comes after IPVS, which
// takes out of this hook what it serves (priority srcnat - 1): what gets as far is for the host. Pings are answered, and
// messages about paths and errors have to get through.
func (f *filter) chains(of family) []ruleChain {
	newOnes := [][]expr.Any{append(of.newTo(kernel.Drop), drop), append(append(of.newTo(kernel.Restricted), of.notAllowed()...), drop)}
	prerouting := append(slices.Clone(newOnes), of.mark(kernel.Masquerade))
	if f.options.MasqueradeAll {
		prerouting = append(prerouting, of.mark(kernel.OffCluster))
	} else if outside := f.fromOutside(of); len(outside) > 0 {
		prerouting = append(prerouting, append(outside, of.mark(kernel.OffCluster)...))
	}
	output := append(newOnes, of.mark(kernel.Masquerade), of.mark(kernel.OffCluster), of.mark(kernel.FromNode))
	return []ruleChain{
		{of.chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle), prerouting},
		{of.chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityMangle), output},
		{of.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			[][]expr.Any{masqueradeMarked(), of.masqueradeHairpin()}},
		{of.chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, afterIPVS), f.isolation(of)},
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

var (
	drop   = &expr.Verdict{Kind: expr.VerdictDrop}
	accept = &expr.Verdict{Kind: expr.VerdictAccept}
)

// afterIPVS is the first priority that comes after those of IPVS, on input.
var afterIPVS = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 1)

// isolation returns the rules that keep new connections to virtual addresses from programs of the host.
func (f *filter) isolation(of family) [][]expr.Any {
	load, _ := of.destined()
	health := append(of.newToIsolated(), append(load, &expr.Lookup{SourceRegister: register0, SetName: string(kernel.Health)}, accept)...)
	rules := [][]expr.Any{health}
	if p := f.options.HealthPort; p != 0 {
		rules = append(rules, append(append(of.newToIsolated(), protocolIs(kernel.TCP, true)...),
			&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register0, Data: []byte{byte(p >> 8), byte(p)}}, accept))
	}
	reset := append(append(of.newToIsolated(), protocolIs(kernel.TCP, true)...), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	other := append(append(of.newToIsolated(), protocolIs(of.icmp, false)...), of.unreachable())
	return append(rules, reset, other)
}

// unreachable answers that nobody listens at the port.
func (f family) unreachable() expr.Any {
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.portUnreachable}
}

// newToIsolated matches packets that begin something at an isolated address.
func (f family) newToIsolated() []expr.Any {
	return append(isNew(),
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addr.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Isolated)})
}

// protocolIs goes on when the packet is of the protocol, or when it is not.
func protocolIs(p kernel.Protocol, is bool) []expr.Any {
	op := expr.CmpOpEq
	if !is {
		op = expr.CmpOpNeq
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register0}, &expr.Cmp{Op: op, Register: register0, Data: []byte{byte(p)}}}
}

func isNew() []expr.Any {
	return append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register0}}, anyBit(expr.CtStateBitNEW)...)
}

// newTo matches packets that begin something at the elements of a set.
func (f family) newTo(set kernel.Set) []expr.Any {
	return append(isNew(), f.to(set)...)
}

// anyBit goes on when the bits are set in the first register.
func anyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: make([]byte, 4)},
	}
}

// fromOutside goes on when a packet is of no pod, by whatever tells that; nothing tells when it is empty.
func (f *filter) fromOutside(of family) []expr.Any {
	name := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register0}
	switch o := f.options; {
	case o.PodBridge != "":
		padded := make([]byte, unix.IFNAMSIZ)
		copy(padded, o.PodBridge)
		return []expr.Any{name, &expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: padded}}
	case o.PodInterfacePrefix != "":
		return []expr.Any{name, &expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: []byte(o.PodInterfacePrefix)}}
	}
	return of.notFrom(f.options.ClusterCIDRs)
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
