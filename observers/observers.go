// Package observers watches a cluster and the kernels of its nodes and records events: changes in the Kubernetes API
// (api*.go), in IPVS, nftables and BPF tables (tables.go, poller.go, ipvs*.go, nftables_*.go, bpf.go), the backends that connection tracking chose
// (conntrack*.go) and lines of proxy logs (proxylog.go). dump.go reads the whole network state of a namespace as text.
//
// Observers change nothing in a cluster. The lab and live clusters share those of the API, so that a report names the same
// causes on both.
package observers

import "net/netip"

// Node is a node of the lab whose kernel is observed.
type Node struct {
	Name  string
	Addrs []netip.Addr // of each family
	Namespace
	// Inside runs f on a thread with the node's files too; only for BPF tables.
	Inside func(f func() error) error
}

// Namespace is a network namespace that may be replaced by another one, as when its node restarts.
type Namespace interface {
	// Do runs f on a thread inside the namespace and returns its error.
	Do(f func() error) error
	// Generation counts the replacements so far. A socket of a lower generation belongs to a former namespace.
	Generation() int
}

// ServiceAddress is an address and port of a Service, as the clients of a lane use it.
type ServiceAddress struct {
	Address netip.AddrPort
	UDP     bool
	// Clients is the range that the clients' addresses are in; rules may depend on it.
	Clients netip.Prefix
}

func (s ServiceAddress) protocol() string {
	if s.UDP {
		return "udp"
	}
	return "tcp"
}

// idleFactor bounds the time that an observer of a kernel uses: it rests idleFactor times as long as its last read took.
const idleFactor = 20
