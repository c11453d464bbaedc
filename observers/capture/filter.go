package capture

import (
	"golang.org/x/net/bpf"
)

// snapLength is how much of a packet is kept: all headers, and of an ICMP error the ports of the packet that it quotes.
const snapLength = 128

// Offsets in an Ethernet frame.
const (
	offType       = 12
	offIP         = 14
	offIP4Frag    = offIP + 6
	offIP4Proto   = offIP + 9
	offIP6Next    = offIP + 6
	offIP6Payload = offIP + 40
	offTCPFlags   = 13 // in the TCP header
)

const (
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	protoICMP   = 1
	protoTCP    = 6
	protoICMPv6 = 58
	finSynRst   = 0x07
	moreOffset  = 0x1fff // all fragments but the first have an offset
	icmp6Error  = 127    // the last type of an error (RFC 4443)
)

// filter is the program that the kernel runs for each packet: bpf(4). Other packets cost no copy.
func filter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeIPv4, SkipFalse: 8},
		bpf.LoadAbsolute{Off: offIP4Proto, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoICMP, SkipTrue: 15},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoTCP, SkipFalse: 13},
		bpf.LoadAbsolute{Off: offIP4Frag, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: moreOffset, SkipTrue: 11},
		bpf.LoadMemShift{Off: offIP},
		bpf.LoadIndirect{Off: offIP + offTCPFlags, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: finSynRst, SkipTrue: 9, SkipFalse: 8},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeIPv6, SkipFalse: 7}, // of the Ethernet type
		bpf.LoadAbsolute{Off: offIP6Next, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoICMPv6, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protoTCP, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offIP6Payload + offTCPFlags, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: finSynRst, SkipTrue: 3, SkipFalse: 2},
		bpf.LoadAbsolute{Off: offIP6Payload, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: icmp6Error, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: snapLength},
	}
}
