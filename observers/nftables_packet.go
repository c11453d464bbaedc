//go:build linux

package observers

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// truth is a value of Kleene logic: AND is the minimum, NOT x is yes - x.
type truth int

const (
	no truth = iota
	maybe
	yes
)

// unknown stands for a byte of a packet or register whose value is not known. Known bytes are 0 to 255.
const unknown = -1

func knownBytes(data []byte) (value []int16) {
	for _, b := range data {
		value = append(value, int16(b))
	}
	return value
}

func unknownBytes(n int) (value []int16) {
	for range n {
		value = append(value, unknown)
	}
	return value
}

// concrete converts a value without unknown bytes; nil for one with them.
func concrete(value []int16) (data []byte) {
	for _, b := range value {
		if b == unknown {
			return nil
		}
		data = append(data, byte(b))
	}
	return data
}

func equal(value []int16, want []byte) truth {
	is := yes
	for i, b := range want {
		switch {
		case i >= len(value) || value[i] == unknown:
			is = maybe
		case byte(value[i]) != b:
			return no
		}
	}
	return is
}

// compare leaves order comparisons undecided: no proxy uses them before a translation.
func compare(value []int16, e *expr.Cmp) truth {
	switch e.Op {
	case expr.CmpOpEq:
		return equal(value, e.Data)
	case expr.CmpOpNeq:
		return yes - equal(value, e.Data)
	}
	return maybe
}

func applyMask(value []int16, e *expr.Bitwise) []int16 {
	result := unknownBytes(len(value))
	for i := range min(len(value), len(e.Mask), len(e.Xor)) {
		switch {
		case e.Mask[i] == 0:
			result[i] = int16(e.Xor[i])
		case value[i] != unknown:
			result[i] = int16(byte(value[i])&e.Mask[i] ^ e.Xor[i])
		}
	}
	return result
}

// registers are those of nftables (linux/netfilter/nf_tables.h). NFT_REG32_00 and its successors have 4 bytes each; NFT_REG_1
// to NFT_REG_4 overlay four of them each.
type registers struct {
	bytes   [4 * (4 + 16)]int16
	random  uint32 // the register that holds a random number
	modulus int    // the exclusive upper bound of that number
}

func unknownRegisters() (r registers) {
	copy(r.bytes[:], unknownBytes(len(r.bytes)))
	return r
}

func registerOffset(register uint32) int {
	if register < unix.NFT_REG32_00 {
		return int(register) * 16
	}
	return int(register-unix.NFT_REG32_00+4) * 4
}

func (r *registers) load(register uint32, n int) []int16 {
	from := min(registerOffset(register), len(r.bytes))
	return r.bytes[from:min(from+n, len(r.bytes))]
}

// store pads the value with zeros to a multiple of four bytes, as the kernel does.
func (r *registers) store(register uint32, value []int16) {
	if register == r.random {
		r.modulus = 0
	}
	into := r.load(register, (len(value)+3)/4*4)
	clear(into)
	copy(into, value)
}

func (r *registers) storeRandom(e *expr.Numgen) {
	r.store(e.Register, unknownBytes(4))
	r.random, r.modulus = e.Register, int(e.Modulus)
}

// randomModulus returns the modulus of the random number in a register; 0 when it holds none.
func (r *registers) randomModulus(register uint32) int {
	if register != r.random {
		return 0
	}
	return r.modulus
}

// packet is the first packet of a connection, with unknown bytes where connections differ.
type packet struct {
	to                   netip.AddrPort
	family               nftables.TableFamily
	hook                 nftables.ChainHook
	protocol             byte
	network, transport   []int16
	fromNode, toNodeAddr bool
}

// Offsets and lengths in the network header (RFC 791, RFC 8200).
const (
	headerV4, protocolV4, sourceV4, targetV4 = 20, 9, 12, 16
	headerV6, protocolV6, sourceV6, targetV6 = 40, 6, 8, 24
)

// firstPacket is a packet to a Service address that arrives at the node with the addresses node, or that the node itself sends.
func firstPacket(s ServiceAddress, node []netip.Addr) packet {
	p := packet{to: s.Address, family: nftables.TableFamilyIPv4, hook: *nftables.ChainHookPrerouting, protocol: unix.IPPROTO_TCP,
		network: unknownBytes(headerV4), transport: unknownBytes(4),
		fromNode: s.Clients.IsSingleIP() && slices.Contains(node, s.Clients.Addr()), toNodeAddr: slices.Contains(node, s.Address.Addr())}
	if s.UDP {
		p.protocol = unix.IPPROTO_UDP
	}
	if p.fromNode {
		p.hook = *nftables.ChainHookOutput
	}
	protocol, source, target := protocolV4, sourceV4, targetV4
	if s.Address.Addr().Is6() {
		p.family, p.network = nftables.TableFamilyIPv6, unknownBytes(headerV6)
		protocol, source, target = protocolV6, sourceV6, targetV6
	}
	p.network[protocol] = int16(p.protocol)
	if s.Clients.IsValid() && s.Clients.Addr().Is6() == s.Address.Addr().Is6() {
		copy(p.network[source:], knownBytes(s.Clients.Addr().AsSlice()[:s.Clients.Bits()/8]))
	}
	copy(p.network[target:], knownBytes(s.Address.Addr().AsSlice()))
	copy(p.transport[2:], knownBytes(binary.BigEndian.AppendUint16(nil, s.Address.Port())))
	return p
}

func (p packet) payload(base expr.PayloadBase, offset, n uint32) []int16 {
	value := unknownBytes(int(n))
	from := p.network
	switch base {
	case expr.PayloadBaseTransportHeader:
		from = p.transport
	case expr.PayloadBaseNetworkHeader:
	default:
		return value
	}
	copy(value, from[min(int(offset), len(from)):])
	return value
}

func (p packet) meta(key expr.MetaKey) []int16 {
	switch key {
	case expr.MetaKeyL4PROTO:
		return []int16{int16(p.protocol)}
	case expr.MetaKeyNFPROTO:
		return []int16{int16(p.family)}
	}
	return unknownBytes(16)
}

// fib knows the address type only: unicast, or local to the node (linux/rtnetlink.h).
func (p packet) fib(e *expr.Fib) []int16 {
	if !e.ResultADDRTYPE {
		return unknownBytes(16)
	}
	local := p.toNodeAddr
	if e.FlagSADDR {
		local = p.fromNode
	}
	return knownBytes(binary.NativeEndian.AppendUint32(nil, addressType(local)))
}

func addressType(local bool) uint32 {
	if local {
		return unix.RTN_LOCAL
	}
	return unix.RTN_UNICAST
}

// match evaluates the matches of iptables that proxies put before a translation.
func (p packet) match(e *expr.Match) truth {
	switch info := e.Info.(type) {
	case *xt.Comment:
		return yes
	case *xt.Tcp:
		return p.matchPorts(info.SrcPorts, info.DstPorts, info.FlagsMask == 0 && info.Option == 0 && info.InvFlags == 0)
	case *xt.Udp:
		return p.matchPorts(info.SrcPorts, info.DstPorts, info.InvFlags == 0)
	case *xt.AddrTypeV1:
		const invertSource, invertDest = 1, 2 // linux/netfilter/xt_addrtype.h
		is := func(types uint16, local, invert bool) bool {
			return types == 0 || (types&(1<<addressType(local)) != 0) != invert
		}
		if is(info.Source, p.fromNode, info.Flags&invertSource != 0) && is(info.Dest, p.toNodeAddr, info.Flags&invertDest != 0) {
			return yes
		}
		return no
	}
	return maybe
}

// matchPorts decides matches on a range of destination ports; portsOnly is false for one with further conditions.
func (p packet) matchPorts(source, dest [2]uint16, portsOnly bool) truth {
	switch {
	case !portsOnly || source != [2]uint16{0, 0xffff}:
		return maybe
	case dest[0] <= p.to.Port() && p.to.Port() <= dest[1]:
		return yes
	}
	return no
}
