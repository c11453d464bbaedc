//go:build linux

package routing

import "sync/atomic"

// The client ports of requests are below those that kernels choose, and those of nodes.
const (
	firstPort   = 10000
	clientPorts = 10000
)

var lastPort atomic.Uint32

// clientPort is the port of the next request of UDP or SCTP. Kernels choose their ports at random. One of 24 would repeat an earlier one in
// 1 % of the checks and belong to its flow: the first packet of SCTP is lost then, and comes again after the timeout.
func clientPort() int { return firstPort + int(lastPort.Add(1)%clientPorts) }
