// Package desired computes what a node's kernel should hold for the Services of a cluster. It is a pure function of API
// objects, the node's name and a few options; it reads no kernel and keeps no time.
//
// The contract it implements: KEP-1669 (terminating endpoints), KEP-2086 (internalTrafficPolicy) and the behaviour of
// kube-proxy's iptables and nftables modes where upstream's IPVS mode differs from them.
package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// Options say for which node, and how, the desired state is computed.
type Options struct {
	Node                string                     // name of the Node object; endpoints with this nodeName are local
	Zone                string                     // of the Node, from its label; empty for none
	Scheduler           string                     // IPVS scheduler of Services that ask for none
	NoScheduler         map[string]string          // schedulers that this kernel does not have, and why
	TerminatingFallback bool                       // KEP-1669; false is what kube-proxy did before 1.26
	IPv6                bool                       // the node can do it
	Reserved            map[netip.Addr]Reservation // addresses of the node, which Services may not claim
	NodePorts           []netip.Addr               // addresses of the node on which NodePorts are served
}

// Reservation says for whom an address of the node is out of reach.
type Reservation uint8

// The reservations. Cluster IPs are given out by the API server from its own range, and may stand on another device of the
// node for good reasons, as a DNS cache has it. What users write may not.
const (
	Always Reservation = iota + 1
	ButClusterIPs
)

// Origin says what a virtual address comes from. A lower one wins when two Services claim the same address and port.
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
	Service types.NamespacedName
	Origin  Origin
	Source  kernel.Set       // which of the recording sets it is in: whose traffic is masqueraded
	Clients *Clients         // who may open new connections; nil for everybody
	Drop    bool             // drop new connections: policy Local without a local endpoint
	Reals   []netip.AddrPort // take new connections; sorted
	Leaving []Leaving        // take none, but are still listed; sorted by address
	Hairpin []netip.Addr     // addresses of all local pods, so that a readiness flap changes no set; sorted
	Health  uint16           // port of the host that answers at the address all the same: healthCheckNodePort; 0 for none
}

// Clients are the prefixes that new connections may come from; sorted, and none contains another. None means nobody.
type Clients []netip.Prefix

func (c *Clients) equal(o *Clients) bool {
	if c == nil || o == nil {
		return c == o
	}
	return slices.Equal(*c, *o)
}

// Leaving is an endpoint that is listed but takes no new connections.
type Leaving struct {
	Addr  netip.AddrPort
	Ended bool // it terminates and does not serve any more; one that is unready may answer on its connections, and be ready again
}

// shared returns the elements that the virtual server needs and others may need too.
func (v *Virtual) shared() []kernel.Element {
	var all []kernel.Element
	for _, a := range v.Hairpin {
		all = append(all, kernel.Element{Set: kernel.Hairpin, Key: kernel.Key{Addr: a}})
	}
	if v.Health != 0 {
		all = append(all, kernel.Element{Set: kernel.Health, Key: kernel.Key{Addr: v.Addr, Protocol: kernel.TCP, Port: v.Health}})
	}
	return all
}

// Binds reports whether the address has to be made the node's own. That of a NodePort is so already.
func (v *Virtual) Binds() bool { return v.Origin != FromNodePort }

// equal reports whether two desired states are the same in every respect.
func (v *Virtual) equal(o *Virtual) bool {
	if v == nil || o == nil {
		return v == o
	}
	return v.Virtual == o.Virtual && v.Service == o.Service && v.Origin == o.Origin && v.Source == o.Source &&
		v.Drop == o.Drop && v.Clients.equal(o.Clients) && slices.Equal(v.Reals, o.Reals) && slices.Equal(v.Leaving, o.Leaving) &&
		slices.Equal(v.Hairpin, o.Hairpin) && v.Health == o.Health
}

// HealthCheck is what the healthCheckNodePort of a Service tells.
type HealthCheck struct {
	Port  uint16
	Local int // ready endpoints on this node; terminating ones do not count
}

// Reason is a fixed word for why something was refused.
type Reason string

// The reasons to refuse.
const (
	BadAddress       Reason = "bad-address"       // cannot be a virtual address: loopback, link-local, a node's own, …
	BadEndpoint      Reason = "bad-endpoint"      // an endpoint without a usable address or port
	BadPort          Reason = "bad-port"          // a port outside 1 to 65535
	DuplicatePort    Reason = "duplicate-port"    // the Service has this protocol and port, or NodePort, already
	UnknownProtocol  Reason = "unknown-protocol"  // no protocol that a Service can have
	AddressTaken     Reason = "address-taken"     // another Service has this address and port
	ForeignServer    Reason = "foreign-server"    // somebody else's virtual server is there
	KernelRefused    Reason = "kernel-refused"    // the kernel does not take it, as an endpoint at a broadcast address
	BadSource        Reason = "bad-source"        // a range of clients that is none; it lets nobody in
	FamilyMismatched Reason = "family-mismatched" // an address of a family that its slice or its Service does not have
	BadScheduler     Reason = "bad-scheduler"     // a scheduler that there is not; the node's is used
	NoIPv6           Reason = "no-ipv6"           // an address of IPv6 on a node that cannot do it
	NoNodeAddress    Reason = "no-node-address"   // a NodePort, and no address of the node to serve it on
)

// Refusal is something in the API that the proxier did not program, and why.
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
	HealthCheck *HealthCheck // nil when the Service has none
	Refused     []Refusal    // sorted, without duplicates
}
