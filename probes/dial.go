package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
)

// Source ports of DialBesideLanes: below those of lanes, and of NodePorts.
const (
	firstBesidePort = 20480
	besidePortCount = 8192
)

// besidePorts counts the ports that this process has used.
var besidePorts atomic.Uint32

// nthBesidePort returns the nth port of this process. Processes begin at different ports.
func nthBesidePort(n uint32) uint16 {
	return uint16(firstBesidePort + (uint32(os.Getpid())*61+n)%besidePortCount)
}

// DialBesideLanes connects from a source port that no lane uses. The network is tcp or udp, and the address an IP address and a port.
//
// A packet that reaches a node before its proxy has rules for the Service leaves a conntrack entry without translation, for up to
// 120 s (nf_conntrack_tcp_timeout_syn_sent). An attempt with the same five-tuple would match it and be lost.
func DialBesideLanes(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w; give an IP address and a port", address, err)
	}
	from := netip.IPv6Unspecified()
	if to.Addr().Unmap().Is4() {
		from = netip.IPv4Unspecified()
	}
	for range besidePortCount {
		conn, err := dialFrom(ctx, network, netip.AddrPortFrom(from, nthBesidePort(besidePorts.Add(1))), address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("connecting to %s: each source port from %d to %d is in use", address, firstBesidePort, firstBesidePort+besidePortCount-1)
}

func dialFrom(ctx context.Context, network string, from netip.AddrPort, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	return d.DialContext(ctx, network, address)
}
