package record

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// PickNode returns the index of the node that a passthrough balancer chooses for a new flow, out of n nodes.
// It is the kernel's own function, so that an attempt that got no answer still has a node: nftables' jhash expression
// over source address, destination address, source port and destination port (16 bytes, or 40 of IPv6: each port stands in
// a register of its own, padded to four bytes), scaled to n as net/netfilter/nft_hash.c does (jhash with the given seed, then
// reciprocal_scale). It equals `jhash ip saddr . ip daddr . tcp sport . tcp dport mod n seed S` of the nft program; a
// rule made without a seed attribute gets a random one from the kernel. n must be positive, both addresses of one family.
func PickNode(source, target netip.AddrPort, seed uint32, n int) int {
	return int(uint64(FlowHash(source, target, seed)) * uint64(n) >> 32)
}

// FlowHash is the hash of a flow that PickNode scales to the number of nodes: the upper bits choose. Both addresses must be
// of one family.
func FlowHash(source, target netip.AddrPort, seed uint32) uint32 {
	var room [2*16 + 2*4]byte
	size := 16
	if source.Addr().Is4() {
		size = 4
		src, dst := source.Addr().As4(), target.Addr().As4()
		copy(room[:], src[:])
		copy(room[size:], dst[:])
	} else {
		src, dst := source.Addr().As16(), target.Addr().As16()
		copy(room[:], src[:])
		copy(room[size:], dst[:])
	}
	key := room[:2*size+8]
	binary.BigEndian.PutUint16(key[2*size:], source.Port())
	binary.BigEndian.PutUint16(key[2*size+4:], target.Port())
	return jhash(key, seed)
}

// jhash is Bob Jenkins' hash as in include/linux/jhash.h, for keys whose length is a multiple of four bytes.
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(key[i:]) }
	for ; len(key) > 12; key = key[12:] {
		a, b, c = a+word(0), b+word(4), c+word(8)
		a = a - c ^ bits.RotateLeft32(c, 4)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 6)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 8)
		b += a
		a = a - c ^ bits.RotateLeft32(c, 16)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 19)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 4)
		b += a
	}
	switch len(key) {
	case 12:
		c += word(8)
		fallthrough
	case 8:
		b += word(4)
		fallthrough
	case 4:
		a += word(0)
	case 0:
		return c
	}
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
