package record

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
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

// Datagrams reports whether a protocol of lanes uses UDP, which has no handshake.
func Datagrams(protocol string) bool { return strings.HasPrefix(protocol, "udp") }

// ProofFault is a known fault by which a proof tests the detector.
type ProofFault string

// The faults of a proof. All but ProofDropOnNode are words of Fault.Fault, and on every node.
const (
	ProofDrop       ProofFault = "drop" // over TCP the SYN of new connections, over UDP each datagram
	ProofRefuse     ProofFault = "refuse"
	ProofReset      ProofFault = "reset"
	ProofMisroute   ProofFault = "misroute"
	ProofDropOnNode ProofFault = "drop on one node"
)

// ProofFaults lists the faults of a proof.
func ProofFaults() []ProofFault {
	return []ProofFault{ProofDrop, ProofDropOnNode, ProofRefuse, ProofReset, ProofMisroute}
}

// LaneKind is a kind of lane, with the faults of a proof that its attempts cannot meet.
type LaneKind struct {
	Protocol string
	blind    []blindness
}

// blindness is why attempts of a kind of lane meet none of some faults.
type blindness struct {
	reason string
	to     []ProofFault
}

const (
	opensNone  = "its connections are open, and the fault meets only new ones"
	noDatagram = "a datagram has no connection that could be reset"
)

// laneKinds are all kinds of lanes.
var laneKinds = []LaneKind{
	{Protocol: ProtocolNew},
	{ProtocolDial, []blindness{{"it sends nothing that could be answered by a reset", []ProofFault{ProofReset}}, {"it reads no answer", []ProofFault{ProofMisroute}}}},
	{ProtocolLong, []blindness{{opensNone, []ProofFault{ProofDrop, ProofDropOnNode, ProofRefuse}}}},
	{ProtocolReuse, []blindness{{opensNone, []ProofFault{ProofDrop, ProofDropOnNode, ProofRefuse}}}},
	{ProtocolFresh, []blindness{{noDatagram, []ProofFault{ProofReset}}}},
	{ProtocolSticky, []blindness{{noDatagram, []ProofFault{ProofReset}}, {"its only flow goes over one node, which may be another", []ProofFault{ProofDropOnNode}}}},
}

// LaneKinds lists all kinds of lanes.
func LaneKinds() []LaneKind { return slices.Clone(laneKinds) }

// Blind is why attempts of this kind cannot meet a fault; empty if they do.
func (k LaneKind) Blind(to ProofFault) (reason string) {
	for _, b := range k.blind {
		if slices.Contains(b.to, to) {
			return b.reason
		}
	}
	return ""
}

// Sees reports whether attempts of lanes with the protocol meet a fault of a proof. Those of unknown protocols meet all.
func Sees(protocol string, fault ProofFault) bool {
	i := slices.IndexFunc(laneKinds, func(k LaneKind) bool { return k.Protocol == protocol })
	return i < 0 || laneKinds[i].Blind(fault) == ""
}

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

// Datagrams reports whether the lane uses UDP.
func (l *DeclaredLane) Datagrams() bool { return Datagrams(l.Protocol) }

// Keeps reports whether connections of the lane outlive attempts.
func (l *DeclaredLane) Keeps() bool { return l.Protocol == ProtocolLong || l.Protocol == ProtocolReuse }

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
