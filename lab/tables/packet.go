package tables

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// truth says whether something is so, as far as one can know. The less of two truths is that both are so.
type truth int

const (
	no truth = iota
	maybe
	yes
)

// Values are bytes, of which some are unknown.
const unknown = -1

func known(data []byte) (value []int16) {
	for _, b := range data {
		value = append(value, int16(b))
	}
	return value
}

func nothing(n int) (value []int16) {
	for range n {
		value = append(value, unknown)
	}
	return value
}

// certain is a value without unknown bytes, else nil.
func certain(value []int16) (data []byte) {
	for _, b := range value {
		if b == unknown {
			return nil
		}
		data = append(data, byte(b))
	}
	return data
}

func same(value []int16, want []byte) truth {
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

// compare has ranges undecided: no proxy has any where it matters.
func compare(value []int16, e *expr.Cmp) truth {
	switch e.Op {
	case expr.CmpOpEq:
		return same(value, e.Data)
	case expr.CmpOpNeq:
		return yes - same(value, e.Data)
	}
	return maybe
}

func masked(value []int16, e *expr.Bitwise) []int16 {
	result := nothing(len(value))
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

// registers are those of nftables: the first of four bytes each is NFT_REG32_00, and NFT_REG_1 to NFT_REG_4 are four of them
// (linux/netfilter/nf_tables.h).
type registers struct {
	bytes   [4 * (4 + 16)]int16
	drawn   uint32 // the register with a random number
	modulus int    // below this
}

func blank() (r registers) {
	copy(r.bytes[:], nothing(len(r.bytes)))
	return r
}

func place(register uint32) int {
	if register < unix.NFT_REG32_00 {
		return int(register) * 16
	}
	return int(register-unix.NFT_REG32_00+4) * 4
}

func (r *registers) get(register uint32, n int) []int16 {
	from := min(place(register), len(r.bytes))
	return r.bytes[from:min(from+n, len(r.bytes))]
}

// put fills the rest of the last four bytes up with zeros, as the kernel does.
func (r *registers) put(register uint32, value []int16) {
	if register == r.drawn {
		r.modulus = 0
	}
	into := r.get(register, (len(value)+3)/4*4)
	clear(into)
	copy(into, value)
}

func (r *registers) draw(e *expr.Numgen) {
	r.put(e.Register, nothing(4))
	r.drawn, r.modulus = e.Register, int(e.Modulus)
}

func (r *registers) drawnFrom(register uint32) int {
	if register != r.drawn {
		return 0
	}
	return r.modulus
}

// packet is the first of a connection, as far as it is known.
type packet struct {
	to                   netip.AddrPort
	family               nftables.TableFamily
	hook                 nftables.ChainHook
	protocol             byte
	network, transport   []int16
	fromNode, toNodeAddr bool
}

// Where the headers have what rules look at (RFC 791, RFC 8200).
const (
	headerV4, protocolV4, sourceV4, targetV4 = 20, 9, 12, 16
	headerV6, protocolV6, sourceV6, targetV6 = 40, 6, 8, 24
)

// packetTo is a packet to a virtual server as it comes to a node, or leaves its own programs.
func packetTo(s Server, node netip.Addr) packet {
	p := packet{to: s.Address, family: nftables.TableFamilyIPv4, hook: *nftables.ChainHookPrerouting, protocol: unix.IPPROTO_TCP,
		network: nothing(headerV4), transport: nothing(4), fromNode: s.From.IsSingleIP() && s.From.Addr() == node, toNodeAddr: s.Address.Addr() == node}
	if s.UDP {
		p.protocol = unix.IPPROTO_UDP
	}
	if p.fromNode {
		p.hook = *nftables.ChainHookOutput
	}
	protocol, source, target := protocolV4, sourceV4, targetV4
	if s.Address.Addr().Is6() {
		p.family, p.network = nftables.TableFamilyIPv6, nothing(headerV6)
		protocol, source, target = protocolV6, sourceV6, targetV6
	}
	p.network[protocol] = int16(p.protocol)
	if s.From.IsValid() && s.From.Addr().Is6() == s.Address.Addr().Is6() {
		copy(p.network[source:], known(s.From.Addr().AsSlice()[:s.From.Bits()/8]))
	}
	copy(p.network[target:], known(s.Address.Addr().AsSlice()))
	copy(p.transport[2:], known(binary.BigEndian.AppendUint16(nil, s.Address.Port())))
	return p
}

func (p packet) load(base expr.PayloadBase, offset, n uint32) []int16 {
	value := nothing(int(n))
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
	return nothing(16)
}

// fib has a type of address only: unicast, or local to the node (linux/rtnetlink.h).
func (p packet) fib(e *expr.Fib) []int16 {
	if !e.ResultADDRTYPE {
		return nothing(16)
	}
	local := p.toNodeAddr
	if e.FlagSADDR {
		local = p.fromNode
	}
	return known(binary.NativeEndian.AppendUint32(nil, addressType(local)))
}

func addressType(local bool) uint32 {
	if local {
		return unix.RTN_LOCAL
	}
	return unix.RTN_UNICAST
}

// match decides of the matches of iptables those that stand before a proxy's translations.
func (p packet) match(e *expr.Match) truth {
	switch info := e.Info.(type) {
	case *xt.Comment:
		return yes
	case *xt.Tcp:
		return p.ports(info.SrcPorts, info.DstPorts, info.FlagsMask == 0 && info.Option == 0 && info.InvFlags == 0)
	case *xt.Udp:
		return p.ports(info.SrcPorts, info.DstPorts, info.InvFlags == 0)
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

func (p packet) ports(source, dest [2]uint16, plain bool) truth {
	switch {
	case !plain || source != [2]uint16{0, 0xffff}:
		return maybe
	case dest[0] <= p.to.Port() && p.to.Port() <= dest[1]:
		return yes
	}
	return no
}
