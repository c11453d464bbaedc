package record

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"
)

// The protocols of lanes: how an attempt reaches the Service.
const (
	ProtocolNew    = "tcp-new"     // each attempt is a new connection
	ProtocolDial   = "tcp-connect" // each attempt is a new connection, without a request
	ProtocolLong   = "tcp-long"    // connections stay open; an attempt is one request on one of them
	ProtocolReuse  = "http-reuse"  // attempts share kept-alive connections
	ProtocolSticky = "udp-sticky"  // all datagrams come from one socket
	ProtocolFresh  = "udp-fresh"   // each datagram comes from a new socket
)

// DeclaredLane is a lane as its declaration describes it.
type DeclaredLane struct {
	Lane
	Declared time.Duration  // when the first attempt was due
	Address  netip.AddrPort // the target; invalid when it is not an address and a port
	Interval time.Duration  // between two scheduled attempts
	Deadline time.Duration  // dial and reply deadlines together

	flows map[netip.AddrPort]usedFlow // of an http-reuse lane
}

// Declare reads the declaration of a lane, made at an instant of the run. The error names what is impossible in it.
func Declare(at time.Duration, lane Lane) (*DeclaredLane, error) {
	l := &DeclaredLane{Lane: lane, Declared: at, Deadline: lane.Dial + lane.Reply}
	if l.Name == "" {
		l.Name = fmt.Sprintf("lane-%d", l.ID)
	}
	if !(l.Rate >= 1e-6 && l.Rate <= 1e6) {
		return nil, fmt.Errorf("lane %s declares the rate %g; rates are from 0.000001 to 1000000 attempts per second", l.Name, l.Rate)
	}
	l.Interval = time.Duration(float64(time.Second) / l.Rate)
	if l.Worker != "" && l.Workers < 1 {
		return nil, fmt.Errorf("lane %s of worker %s declares a fleet of %d workers", l.Name, l.Worker, l.Workers)
	}
	if address, err := netip.ParseAddrPort(l.Target); err == nil {
		l.Address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	}
	return l, nil
}

// Frontend is the load balancer's address that the lane's attempts go to: the zero value when they bypass it.
func (l *DeclaredLane) Frontend() Frontend {
	if l.Node != "" {
		return Frontend{}
	}
	return Frontend{l.Address, l.Datagrams()}
}

// Datagrams reports whether the lane uses UDP, which has no handshake.
func (l *DeclaredLane) Datagrams() bool { return strings.HasPrefix(l.Protocol, "udp") }

// Opens reports whether each attempt of the lane is a connection of its own.
func (l *DeclaredLane) Opens() bool { return l.Protocol == ProtocolNew || l.Protocol == ProtocolDial }

// ConnectOf is how long an attempt took to connect undisturbed, at most 4.29 s; 0 when it did not.
func (l *DeclaredLane) ConnectOf(a *Attempt) time.Duration {
	switch {
	case a.Retrans > 0:
		return 0
	case l.Datagrams() && a.Class == OK: // an answered datagram has certainly reached the node
		return time.Duration(saturate(a.Total))
	}
	return time.Duration(saturate(a.Connect))
}

// attemptWithin reports whether the lane's schedule has an attempt from one instant until before another.
func (l *DeclaredLane) attemptWithin(from, until time.Duration) bool {
	if until <= l.Declared || l.Interval <= 0 {
		return false
	}
	k := max(0, (from-l.Declared+l.Interval-1)/l.Interval)
	return l.Declared+k*l.Interval < until
}

// saturate fits a duration in nanoseconds into 32 bits.
func saturate(d time.Duration) uint32 {
	return uint32(min(max(d, 0), math.MaxUint32))
}
