// Package desired computes the kernel state of one node from the Services of a cluster. It is a pure function of API
// objects, the node's name and a few options. It does not read the kernel and keeps no time.
//
// It implements KEP-1669 (terminating endpoints) and KEP-2086 (internalTrafficPolicy). Where kube-proxy's IPVS mode
// differs from its iptables and nftables modes, it follows the latter.
package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// Options are the inputs to Compute that do not belong to a Service.
type Options struct {
	Node                  string                     // name of the Node object; endpoints with this nodeName are local
	Zone                  string                     // topology zone of the Node; empty if unknown
	Scheduler             string                     // IPVS scheduler of Services without SchedulerAnnotation
	UnavailableSchedulers map[string]string          // schedulers that this kernel lacks, with the reason
	TerminatingFallback   bool                       // use serving terminating endpoints when none is ready (KEP-1669); kube-proxy before 1.26 did not
	IPv6                  bool                       // the node supports IPv6
	Reserved              map[netip.Addr]Reservation // node addresses that Services must not claim
	NodePortAddrs         []netip.Addr               // node addresses that serve NodePorts
}

// Reservation states which kinds of virtual address may not use an address of the node.
type Reservation uint8

// The reservations. The API server allocates cluster IPs from its own range, so a cluster IP may also be on another
// device of the node, for example that of a node-local DNS cache. Users choose the other virtual addresses freely.
const (
	ReservedAlways Reservation = iota + 1
	ReservedExceptClusterIPs
)

// Origin is the field of the Service that a virtual address comes from. When two Services claim the same address and
// port, the lower Origin wins.
type Origin uint8

// The origins of a virtual address.
const (
	FromClusterIP Origin = iota
	FromLoadBalancer
	FromExternalIP
	FromNodePort
)

// Virtual is the desired state of one virtual server.
type Virtual struct {
	kernel.Virtual
	Service  types.NamespacedName
	Origin   Origin
	Source   kernel.Set         // the set that selects the traffic to masquerade and records the owner
	Clients  *Clients           // allowed client prefixes; nil allows all clients
	Drop     bool               // drop new connections: policy Local without a local endpoint
	Reals    []netip.AddrPort   // real servers that take new connections; sorted
	Draining []DrainingEndpoint // endpoints that are listed but take no new connections; sorted by address
	Hairpin  []netip.Addr       // addresses of all local pods, ready or not, so that readiness changes no set; sorted
	Health   uint16             // healthCheckNodePort, which the host answers at this address too; 0 for none
}

// Clients are the prefixes that new connections may come from; sorted, none contains another. An empty list allows no
// client.
type Clients []netip.Prefix

func (c *Clients) equal(o *Clients) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(*c, *o)
}

// DrainingEndpoint is an endpoint that is listed but takes no new connections.
type DrainingEndpoint struct {
	Addr       netip.AddrPort
	Terminated bool // terminating and no longer serving; an unready endpoint may still answer its connections and become ready again
}

// sharedElements returns the set elements that other virtual servers may need too.
func (v *Virtual) sharedElements() []kernel.Element {
	var all []kernel.Element
	for _, a := range v.Hairpin {
		all = append(all, kernel.Element{Set: kernel.Hairpin, Key: kernel.Key{Addr: a}})
	}
	if v.Health != 0 {
		all = append(all, kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: v.Addr, Protocol: kernel.TCP, Port: v.Health}})
	}
	return all
}

// Binds reports whether the proxier must make the address local. NodePort addresses already belong to the node.
func (v *Virtual) Binds() bool { return v.Origin != FromNodePort }

// equal reports whether two desired states are identical.
func (v *Virtual) equal(o *Virtual) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.Virtual == o.Virtual && v.Service == o.Service && v.Origin == o.Origin && v.Source == o.Source &&
		v.Drop == o.Drop && v.Clients.equal(o.Clients) && slices.Equal(v.Reals, o.Reals) && slices.Equal(v.Draining, o.Draining) &&
		slices.Equal(v.Hairpin, o.Hairpin) && v.Health == o.Health
}

// HealthCheck is the state that a healthCheckNodePort reports.
type HealthCheck struct {
	Port  uint16
	Local []netip.Addr // ready pods on this node, without terminating ones; sorted
}

// Reason is the fixed identifier of a refusal, used as a metric label.
type Reason string

// The reasons.
const (
	BadAddress       Reason = "bad-address"       // not usable as a virtual address: loopback, link-local, a node address, …
	BadEndpoint      Reason = "bad-endpoint"      // endpoint without a usable address or port
	BadPort          Reason = "bad-port"          // port outside 1 to 65535
	DuplicatePort    Reason = "duplicate-port"    // repeated protocol and port, or NodePort, of one Service
	UnknownProtocol  Reason = "unknown-protocol"  // protocol other than TCP, UDP, SCTP
	AddressTaken     Reason = "address-taken"     // another Service owns this address and port
	ForeignServer    Reason = "foreign-server"    // a virtual server that the proxier did not create exists there
	KernelRefused    Reason = "kernel-refused"    // the kernel rejects the operation, for example an endpoint at a broadcast address
	BadSource        Reason = "bad-source"        // invalid entry of loadBalancerSourceRanges; it allows no client
	FamilyMismatched Reason = "family-mismatched" // address of another family than its slice, or of a family that the Service lacks
	BadScheduler     Reason = "bad-scheduler"     // unknown or unavailable scheduler; the node's is used
	NoIPv6           Reason = "no-ipv6"           // IPv6 address on a node without IPv6
	NoNodeAddress    Reason = "no-node-address"   // NodePort without a node address to serve it
)

// Refusal is a part of an API object that the proxier did not program, with the reason.
type Refusal struct {
	Service types.NamespacedName
	Reason  Reason
	Detail  string
}

// Compare orders the refusals of one Service.
func (r Refusal) Compare(o Refusal) int {
	return cmp.Or(cmp.Compare(r.Reason, o.Reason), cmp.Compare(r.Detail, o.Detail))
}

// Service is the desired state of one Service.
type Service struct {
	Name        types.NamespacedName
	Created     time.Time
	Virtuals    []Virtual
	HealthCheck *HealthCheck // nil for Services without one
	Refused     []Refusal    // sorted, without duplicates
}
