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

// masqueradeBit in the packet mark requests masquerading. kube-proxy and the kubelet use the same bit.
const masqueradeBit = 0x4000

// register0 is the first 32-bit register (NFT_REG32_00). Set keys are composed in consecutive registers from it.
const register0 = 8

// destinationPort is the offset of the port in TCP, UDP and SCTP headers.
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
// Marks are set before IPVS, which runs at the end of input and in output. Packets from a node to its own virtual
// address have that address as source, so they are always masqueraded. Only new connections are dropped, so that
// established ones can drain. The conntrack expressions keep conntrack enabled for the life of the table.
//
// Chain input rejects connections to ports of the host at virtual addresses (kubernetes#72236). It follows IPVS
// (priority srcnat - 1), which takes its own packets out of this hook, so the rest is for the host. ICMP passes: echo
// replies, path MTU and errors are needed.
func (f *filter) chains(fam family) []ruleChain {
	dropRules := [][]expr.Any{append(fam.matchNewTo(kernel.Drop), drop), append(append(fam.matchNewTo(kernel.Restricted), fam.sourceNotAllowed()...), drop)}
	prerouting := append(slices.Clone(dropRules), fam.markDestination(kernel.Masquerade))
	if f.options.MasqueradeAll {
		prerouting = append(prerouting, fam.markDestination(kernel.OffCluster))
	} else if outside := f.notFromPod(fam); len(outside) > 0 {
		prerouting = append(prerouting, append(outside, fam.markDestination(kernel.OffCluster)...))
	}
	output := append(dropRules, fam.markDestination(kernel.Masquerade), fam.markDestination(kernel.OffCluster), fam.markDestination(kernel.FromNode))
	return []ruleChain{
		{fam.chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle), prerouting},
		{fam.chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityMangle), output},
		{fam.chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
			[][]expr.Any{masqueradeMarked(), fam.masqueradeHairpin()}},
		{fam.chain("input", nftables.ChainTypeFilter, nftables.ChainHookInput, afterIPVS), f.isolationRules(fam)},
	}
}

func (f family) chain(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Name: name, Table: f.table, Type: kind, Hooknum: hook, Priority: priority, Policy: &accept}
}

// loadDestination loads destination address, protocol and port, and returns the next free register.
func (f family) loadDestination() ([]expr.Any, uint32) {
	next := register0 + f.addrType.Bytes/4
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addrType.Bytes},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
	}, next + 2
}

// matchDestination matches packets to the elements of a set.
func (f family) matchDestination(set kernel.Set) []expr.Any {
	load, _ := f.loadDestination()
	return append(load, &expr.Lookup{SourceRegister: register0, SetName: string(set)})
}

func (f family) markDestination(set kernel.Set) []expr.Any {
	return append(f.matchDestination(set), setMark(true)...)
}

// sourceNotAllowed matches packets whose source is in no allowed prefix.
func (f family) sourceNotAllowed() []expr.Any {
	load, next := f.loadDestination()
	return append(load, &expr.Payload{DestRegister: next, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addrType.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Allowed), Invert: true})
}

func (f family) mask(bits int) []byte { return net.CIDRMask(bits, f.bits()) }

// setMark sets or clears the masquerade bit.
func setMark(set bool) []expr.Any {
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

// afterIPVS is the first input priority after those of IPVS.
var afterIPVS = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 1)

// isolationRules returns the rules that reject new connections to programs of the host at virtual addresses.
func (f *filter) isolationRules(fam family) [][]expr.Any {
	load, _ := fam.loadDestination()
	health := append(fam.matchNewToIsolated(), append(load, &expr.Lookup{SourceRegister: register0, SetName: string(kernel.Health)}, accept)...)
	rules := [][]expr.Any{health}
	if p := f.options.HealthPort; p != 0 {
		rules = append(rules, append(append(fam.matchNewToIsolated(), matchProtocol(kernel.TCP, true)...),
			&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register0, Data: []byte{byte(p >> 8), byte(p)}}, accept))
	}
	reset := append(append(fam.matchNewToIsolated(), matchProtocol(kernel.TCP, true)...), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	other := append(append(fam.matchNewToIsolated(), matchProtocol(fam.icmp, false)...), fam.rejectUnreachable())
	return append(rules, reset, other)
}

// rejectUnreachable rejects with ICMP port unreachable.
func (f family) rejectUnreachable() expr.Any {
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.portUnreachable}
}

// matchNewToIsolated matches the first packet of a connection or flow to an isolated address.
func (f family) matchNewToIsolated() []expr.Any {
	return append(matchNew(),
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addrType.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Isolated)})
}

// matchProtocol matches packets of the protocol, or of all others.
func matchProtocol(p kernel.Protocol, is bool) []expr.Any {
	op := expr.CmpOpEq
	if !is {
		op = expr.CmpOpNeq
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register0}, &expr.Cmp{Op: op, Register: register0, Data: []byte{byte(p)}}}
}

func matchNew() []expr.Any {
	return append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register0}}, matchAnyBit(expr.CtStateBitNEW)...)
}

// matchNewTo matches the first packet of a connection or flow to the elements of a set.
func (f family) matchNewTo(set kernel.Set) []expr.Any {
	return append(matchNew(), f.matchDestination(set)...)
}

// matchAnyBit matches if any of the bits is set in the first register.
func matchAnyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: make([]byte, 4)},
	}
}

// notFromPod matches packets that do not come from a pod; empty if nothing identifies pods.
func (f *filter) notFromPod(fam family) []expr.Any {
	name := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register0}
	switch o := f.options; {
	case o.PodBridge != "":
		padded := make([]byte, unix.IFNAMSIZ)
		copy(padded, o.PodBridge)
		return []expr.Any{name, &expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: padded}}
	case o.PodInterfacePrefix != "":
		return []expr.Any{name, &expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: []byte(o.PodInterfacePrefix)}}
	}
	return fam.sourceOutside(f.options.ClusterCIDRs)
}

// sourceOutside matches packets whose source is in none of the prefixes of the family.
func (f family) sourceOutside(prefixes []netip.Prefix) []expr.Any {
	var match []expr.Any
	for _, p := range prefixes {
		if !f.contains(p.Addr()) {
			continue
		}
		match = append(match,
			&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addrType.Bytes},
			&expr.Bitwise{SourceRegister: register0, DestRegister: register0, Len: f.addrType.Bytes,
				Mask: f.mask(p.Bits()), Xor: make([]byte, f.addrType.Bytes)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register0, Data: p.Masked().Addr().AsSlice()})
	}
	return match
}

// masqueradeMarked clears the mark, so that the outer packet of a tunnel is not masqueraded again.
func masqueradeMarked() []expr.Any {
	rule := []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register0}}
	rule = append(rule, matchAnyBit(masqueradeBit)...)
	return append(append(rule, setMark(false)...), &expr.Masq{FullyRandom: true})
}

// masqueradeHairpin masquerades packets of a pod to itself. Otherwise the pod would reply to itself without passing
// the node.
func (f family) masqueradeHairpin() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: register0, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.addrType.Bytes},
		&expr.Payload{DestRegister: register0 + f.addrType.Bytes/4, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.addrType.Bytes},
		&expr.Lookup{SourceRegister: register0, SetName: string(kernel.Hairpin)},
		&expr.Masq{FullyRandom: true},
	}
}
