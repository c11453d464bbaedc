// Package kernel defines the state that the proxier keeps in a node's kernel and the operations that change it: IPVS
// virtual and real servers, virtual addresses that are made local, and elements of filter sets.
//
// It separates decisions (packages desired and plan) from execution (package linux).
package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The protocols of Service ports.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns tcp, udp, sctp, or the number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol-%d", uint8(p))
}

// Drains reports whether real servers of this protocol are set to weight 0 before they are deleted. Only TCP: a UDP
// or SCTP flow moves with its next packet after its real server is deleted, given expire_nodest_conn=1
// (kubernetes#77802).
func (p Protocol) Drains() bool { return p == TCP }

// Key identifies a virtual server by virtual address, protocol and port. It is comparable.
type Key struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// String returns ADDRESS:PORT/PROTOCOL.
func (k Key) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Compare orders keys by address, protocol and port.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Port, o.Port))
}

// Virtual is a virtual server without its real servers.
type Virtual struct {
	Key
	Scheduler string        // name of the IPVS scheduler, such as rr
	Affinity  time.Duration // time for which a client keeps its real server, in whole seconds; 0 for none
	// ForeignFlags is set by reads only: the scheduler flags differ from those that the proxier sets.
	ForeignFlags bool
}

// Real is a real server of a virtual server. The connection counts are set by reads only.
type Real struct {
	Addr     netip.AddrPort
	Weight   int // 0: no new connections; established ones continue
	Active   int // connections that IPVS counts as established
	Inactive int // other connections that IPVS tracks, such as those in TIME_WAIT
}

// Server is a virtual server with its real servers.
type Server struct {
	Virtual
	Reals []Real
}

// Set is the name of a filter set. Each virtual server of the proxier is in exactly one of the first three. They
// select the traffic to masquerade, and they record in the kernel which virtual servers the proxier created.
type Set string

// The filter sets.
const (
	// Masquerade: traffic to these is always masqueraded (external addresses, policy Cluster).
	Masquerade Set = "masquerade"
	// OffCluster: traffic to these is masqueraded if it comes from the node itself or from outside the pod addresses
	// (cluster IPs).
	OffCluster Set = "off-cluster"
	// FromNode: traffic to these is masqueraded only if it comes from the node itself (external addresses, policy
	// Local).
	FromNode Set = "from-node"
	// Drop: new connections to these are dropped silently (policy Local without a local endpoint).
	Drop Set = "drop"
	// Restricted: new connections to these are dropped unless Allowed contains their source
	// (loadBalancerSourceRanges).
	Restricted Set = "restricted"
	// Allowed: a client prefix that may connect to a member of Restricted. Only this set uses Element.Source.
	Allowed Set = "allowed"
	// Hairpin: a pod that reaches itself through a Service. Only the address of the element's key is used.
	Hairpin Set = "hairpin"
	// Isolated: a virtual address at which programs of the host must not answer. Only the address of the element's
	// key is used.
	Isolated Set = "isolated"
	// Health: a port of the host that answers at a member of Isolated (healthCheckNodePort).
	Health Set = "health"
)

// Sets lists the filter sets in their fixed order.
func Sets() []Set {
	return []Set{Masquerade, OffCluster, FromNode, Drop, Allowed, Restricted, Hairpin, Isolated, Health}
}

// RecordsOwnership reports whether an element of this set records that the proxier created the virtual server with
// the same key.
func (s Set) RecordsOwnership() bool { return s == Masquerade || s == OffCluster || s == FromNode }

// PerServer reports whether an element of this set belongs to the one virtual server of its key.
func (s Set) PerServer() bool { return s != Isolated && !s.Shared() }

// Shared reports whether several virtual servers may need the same element of this set.
func (s Set) Shared() bool { return s == Hairpin || s == Health }

// Element is a member of a filter set.
type Element struct {
	Set    Set
	Key    Key
	Source netip.Prefix // client prefix, for Allowed only
}

// String returns SET:KEY.
func (e Element) String() string {
	switch e.Set {
	case Hairpin, Isolated:
		return string(e.Set) + ":" + e.Key.Addr.String()
	case Allowed:
		return string(e.Set) + ":" + e.Key.String() + " from " + e.Source.String()
	}
	return string(e.Set) + ":" + e.Key.String()
}

// Compare orders elements by set, key and prefix.
func (e Element) Compare(o Element) int {
	return cmp.Or(cmp.Compare(e.Set, o.Set), e.Key.Compare(o.Key), ComparePrefixes(e.Source, o.Source))
}

// ComparePrefixes orders prefixes by address and length.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Addresses are the addresses of a node by kind of device. An address may be in several lists.
type Addresses struct {
	Bound   []netip.Addr // by the proxier, with a local route or on its device
	Node    []netip.Addr // on network devices and loopback
	Virtual []netip.Addr // on dummy devices of other programs, such as a node-local DNS cache
}

// Kernel is a node's kernel. Calls must not overlap; the proxier makes them from one goroutine.
type Kernel interface {
	// Servers returns all virtual servers with an address, including those of other programs, in undefined order. It may
	// miss some while another program deletes any.
	Servers() ([]Server, error)
	// Server returns one virtual server; false and no error if it does not exist.
	Server(Key) (Server, bool, error)
	// Addresses returns the addresses of the node.
	Addresses() (Addresses, error)
	// Elements returns the elements of all filter sets. It first recreates missing sets and rules, which are then
	// empty.
	Elements() ([]Element, error)
	// Scheduler returns nil if the kernel has an IPVS scheduler. An error is ENOENT and names what is missing, or tells why
	// this is unknown.
	Scheduler(name string) error
	// Apply executes one operation. After an error it is unknown whether the operation took effect.
	Apply(Op) error
}

// DamageNotifier is a Kernel that detects when another program deletes rules or sets of the proxier, as `nft flush
// ruleset` does.
type DamageNotifier interface {
	Kernel
	// Damaged receives once for all deletions since the last receive. Elements then recreates what is missing,
	// without the former elements.
	Damaged() <-chan struct{}
}

// Batcher is a Kernel that executes many operations in few exchanges.
type Batcher interface {
	Kernel
	// ApplyAll executes operations in order, continues after failures, and returns one error or nil for each.
	// CanBatch must hold between the first and every other operation, and there may be at most MaxBatch.
	ApplyAll([]Op) []error
}
