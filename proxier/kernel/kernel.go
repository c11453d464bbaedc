// Package kernel names what the proxier keeps in a node's kernel, and the few operations that change it: IPVS virtual
// and real servers, virtual addresses bound on a device, and the elements of filter sets.
//
// It is the narrow waist between deciding and doing. It talks to no kernel itself (package linux does) and decides
// nothing (packages desired and plan do).
package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The protocols a Service port can have.
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

// Drains reports whether real servers of this protocol are taken out by weight 0 first. Only TCP: a UDP or SCTP flow is
// better moved by its next packet, as a real server that is deleted while expire_nodest_conn=1 makes it move
// (kubernetes#77802).
func (p Protocol) Drains() bool { return p == TCP }

// Key names a virtual server: virtual address, protocol and port. It is comparable.
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
	Scheduler string        // IPVS scheduler by name, as rr
	Affinity  time.Duration // a client stays with its real server for this long; 0 for none; whole seconds
	// OtherFlags is filled in by reads only: flags of the scheduler are not as the proxier sets them, but as another proxy did.
	OtherFlags bool
}

// Real is a real server of a virtual server. The counters are filled in by reads only.
type Real struct {
	Addr     netip.AddrPort
	Weight   int // 0: no new connections, established ones continue
	Active   int // connections that IPVS counts as established
	Inactive int // all others that it still remembers, as those in TIME_WAIT
}

// Server is a virtual server with its real servers.
type Server struct {
	Virtual
	Reals []Real
}

// Set is the name of a filter set. Each virtual server of ours is in one of the first three: they say whose traffic is
// masqueraded, and they are the record, kept in the kernel, of which virtual servers the proxier created.
type Set string

// The filter sets.
const (
	// Masquerade: traffic to these is masqueraded wherever it comes from (external addresses, policy Cluster).
	Masquerade Set = "masquerade"
	// OffCluster: traffic to these is masqueraded when it comes from the node itself or from outside the cluster's
	// pod addresses (cluster IPs).
	OffCluster Set = "off-cluster"
	// FromNode: traffic to these is masqueraded only when it comes from the node itself; the client's address is kept
	// otherwise (external addresses, policy Local).
	FromNode Set = "from-node"
	// Drop: new connections to these are dropped silently (policy Local without a local endpoint).
	Drop Set = "drop"
	// Restricted: new connections to these are dropped, except from where Allowed says (loadBalancerSourceRanges).
	Restricted Set = "restricted"
	// Allowed: a prefix of clients that a member of Restricted is open to. Only here From of the element is used.
	Allowed Set = "allowed"
	// Hairpin: a pod that reaches itself through a Service. Only Addr of the element's key is used.
	Hairpin Set = "hairpin"
	// Isolated: a virtual address at which no program of the host answers. Only Addr of the element's key is used.
	Isolated Set = "isolated"
	// Health: a port of the host that does answer at a member of Isolated (healthCheckNodePort).
	Health Set = "health"
)

// Sets lists the filter sets in their fixed order.
func Sets() []Set {
	return []Set{Masquerade, OffCluster, FromNode, Drop, Allowed, Restricted, Hairpin, Isolated, Health}
}

// Records reports whether an element of this set says that the proxier created the virtual server of the same key.
func (s Set) Records() bool { return s == Masquerade || s == OffCluster || s == FromNode }

// Single reports whether an element of this set is about one virtual server, which its key names.
func (s Set) Single() bool { return s != Isolated && !s.Shared() }

// Shared reports whether an element of this set may be there for several virtual servers.
func (s Set) Shared() bool { return s == Hairpin || s == Health }

// Element is a member of a filter set.
type Element struct {
	Set  Set
	Key  Key
	From netip.Prefix // of Allowed only
}

// String returns SET:KEY.
func (e Element) String() string {
	switch e.Set {
	case Hairpin, Isolated:
		return string(e.Set) + ":" + e.Key.Addr.String()
	case Allowed:
		return string(e.Set) + ":" + e.Key.String() + " from " + e.From.String()
	}
	return string(e.Set) + ":" + e.Key.String()
}

// Compare orders elements by set, key and prefix.
func (e Element) Compare(o Element) int {
	return cmp.Or(cmp.Compare(e.Set, o.Set), e.Key.Compare(o.Key), ComparePrefixes(e.From, o.From))
}

// ComparePrefixes orders prefixes by address and length.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Addresses are the addresses of a node by what they stand on. One may be in more than one list.
type Addresses struct {
	Bound   []netip.Addr // the proxier's own device
	Node    []netip.Addr // devices that packets come over, and loopback
	Virtual []netip.Addr // dummy devices of others, as of a DNS cache that answers on a cluster IP
}

// Kernel is a node's kernel. Calls do not overlap: the proxier makes them from one goroutine.
type Kernel interface {
	// Servers returns every virtual server that has an address, also those that others created. Order is not defined.
	Servers() ([]Server, error)
	// Server returns one virtual server; false and no error when it does not exist.
	Server(Key) (Server, bool, error)
	// Addresses returns the addresses that the node has.
	Addresses() (Addresses, error)
	// Elements returns the elements of all filter sets, and makes sets and rules that are missing.
	Elements() ([]Element, error)
	// Scheduler is nil when the kernel has an IPVS scheduler; else it says what is missing.
	Scheduler(name string) error
	// Apply carries out one operation. After an error it is not known whether it took effect.
	Apply(Op) error
}

// Watched is a Kernel that notices when somebody takes rules or sets of the proxier away, as `nft flush ruleset` does.
type Watched interface {
	Kernel
	// Damaged receives after that happened, once for whatever happened since the last time. Elements makes what is missing again,
	// without the elements that were in it.
	Damaged() <-chan struct{}
}

// Batcher is a Kernel that carries out many operations with few exchanges.
type Batcher interface {
	Kernel
	// ApplyAll carries out operations of which the first is Alike all others, at most MostAtOnce of them. It does so one after
	// the other and whether or not the one before failed, as Apply would, and returns an error or nil for each.
	ApplyAll([]Op) []error
}
