package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// Compute returns the desired state of one Service. A nil Service, one without a cluster IP (headless, ExternalName) and
// one that names another proxy (label service.kubernetes.io/service-proxy-name) have an empty one.
func Compute(name types.NamespacedName, svc *v1.Service, slices []*discovery.EndpointSlice, o Options) Service {
	c := computation{options: o, svc: svc, slices: slices, out: Service{Name: name}}
	if svc == nil || !ours(svc) {
		return c.out
	}
	c.out.Created = svc.CreationTimestamp.Time
	c.families()
	frontends := c.frontends()
	seen, nodePorts := map[portKey]bool{}, map[portKey]bool{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		endpoints, ok := c.port(p, frontends, seen)
		if ok && p.NodePort != 0 {
			c.nodePort(p, endpoints, nodePorts)
		}
	}
	c.healthCheck()
	return c.finish()
}

func ours(svc *v1.Service) bool {
	if svc.Spec.Type == v1.ServiceTypeExternalName || svc.Spec.ClusterIP == v1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		return false
	}
	_, other := svc.Labels["service.kubernetes.io/service-proxy-name"]
	return !other
}

type computation struct {
	options Options
	svc     *v1.Service
	slices  []*discovery.EndpointSlice
	has     [2]bool // the families of the Service's cluster IPs
	out     Service
}

// family is the index of a family: 0 for IPv4, 1 for IPv6.
type family int

const (
	ipv4 family = iota
	ipv6
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string { return []string{"IPv4", "IPv6"}[f] }

// byFamily are the endpoints of a port of the Service.
type byFamily [2][]endpoint

func (c *computation) clusterIPs() []string {
	if len(c.svc.Spec.ClusterIPs) == 0 {
		return []string{c.svc.Spec.ClusterIP}
	}
	return c.svc.Spec.ClusterIPs
}

// families finds out which families the Service has. One that cannot be read has none, and is refused where it is used.
func (c *computation) families() {
	for _, text := range c.clusterIPs() {
		if a, err := netip.ParseAddr(text); err == nil {
			c.has[familyOf(a)] = true
		}
	}
}

type portKey struct {
	protocol kernel.Protocol
	port     uint16
}

type frontend struct {
	addr   netip.Addr
	origin Origin
}

func (c *computation) refuse(reason Reason, format string, args ...any) {
	c.out.Refused = append(c.out.Refused, Refusal{Service: c.out.Name, Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// frontends returns the virtual addresses of the Service, each once. Those of a family in which the Service has no cluster
// IP are refused: it has no endpoints there.
func (c *computation) frontends() []frontend {
	var all []frontend
	add := func(text string, origin Origin) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			c.refuse(BadAddress, "%q is not an address", text)
			return
		}
		if why := c.unusable(addr, origin); why != "" {
			c.refuse(BadAddress, "%v %s", addr, why)
			return
		}
		switch f := familyOf(addr); {
		case f == ipv6 && !c.options.IPv6:
			c.refuse(NoIPv6, "%v on a node without IPv6", addr)
			return
		case !c.has[f]:
			c.refuse(FamilyMismatched, "%v, but no cluster IP of the Service is of %v", addr, f)
			return
		}
		if !slices.ContainsFunc(all, func(f frontend) bool { return f.addr == addr }) {
			all = append(all, frontend{addr, origin})
		}
	}
	for _, ip := range c.clusterIPs() {
		add(ip, FromClusterIP)
	}
	if c.svc.Spec.Type == v1.ServiceTypeLoadBalancer {
		for _, in := range c.svc.Status.LoadBalancer.Ingress {
			// KEP-1860: with mode Proxy the balancer delivers to the node, and wants to see all traffic itself.
			if in.IP != "" && (in.IPMode == nil || *in.IPMode == v1.LoadBalancerIPModeVIP) {
				add(in.IP, FromLoadBalancer)
			}
		}
	}
	for _, ip := range c.svc.Spec.ExternalIPs {
		add(ip, FromExternalIP)
	}
	return all
}

// unusable says why an address cannot be a virtual address; empty when it can.
func (c *computation) unusable(a netip.Addr, origin Origin) string {
	if r := c.options.Reserved[a]; r == Always || r == ButClusterIPs && origin != FromClusterIP {
		return "is an address of this node"
	}
	return special(a)
}

// special says what kind of address no Service and no endpoint may have (IANA special-purpose registry); empty for
// ordinary ones.
func special(a netip.Addr) string {
	switch {
	case a.Is4In6():
		return "is an IPv4 address written as IPv6"
	case a.Zone() != "":
		return "has a zone"
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "means this host"
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsLinkLocalUnicast():
		return "is a link-local address"
	case a.IsMulticast():
		return "is a multicast address"
	case a.Is4() && a.As4()[0] >= 240:
		return "is a reserved or broadcast address"
	}
	return ""
}

// port adds the virtual servers of one port of the Service, except for its NodePort, and returns its endpoints; false
// when it was refused.
func (c *computation) port(p *v1.ServicePort, frontends []frontend, seen map[portKey]bool) (endpoints byFamily, ok bool) {
	protocol, ok := c.protocol(p)
	if !ok {
		return endpoints, false
	}
	if p.Port < 1 || p.Port > 65535 {
		c.refuse(BadPort, "port %d of the Service is outside 1 to 65535", p.Port)
		return endpoints, false
	}
	key := portKey{protocol, uint16(p.Port)}
	if seen[key] {
		c.refuse(DuplicatePort, "%v port %d again, as %q", protocol, p.Port, p.Name)
		return endpoints, false
	}
	seen[key] = true
	endpoints = c.endpoints(p)
	for _, f := range frontends {
		c.out.Virtuals = append(c.out.Virtuals, c.virtual(f, key, endpoints))
	}
	return endpoints, true
}

// nodePort adds the virtual servers of a port's NodePort. A Service of another type that has one has it from an earlier
// life, and does not get it.
func (c *computation) nodePort(p *v1.ServicePort, endpoints byFamily, seen map[portKey]bool) {
	if c.svc.Spec.Type != v1.ServiceTypeNodePort && c.svc.Spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	if p.NodePort < 1 || p.NodePort > 65535 {
		c.refuse(BadPort, "NodePort %d is outside 1 to 65535", p.NodePort)
		return
	}
	protocol, _ := c.protocol(p)
	key := portKey{protocol, uint16(p.NodePort)}
	if seen[key] {
		c.refuse(DuplicatePort, "%v NodePort %d again, as %q", protocol, p.NodePort, p.Name)
		return
	}
	seen[key] = true
	var served [2]bool
	for _, a := range c.options.NodePorts {
		if f := familyOf(a); c.has[f] && (f == ipv4 || c.options.IPv6) {
			c.out.Virtuals = append(c.out.Virtuals, c.virtual(frontend{a, FromNodePort}, key, endpoints))
			served[f] = true
		}
	}
	if served == [2]bool{} {
		c.refuse(NoNodeAddress, "the node has no address for NodePorts that is known: see --nodeport-addresses, and the Node's InternalIP")
	}
}

func (c *computation) protocol(p *v1.ServicePort) (kernel.Protocol, bool) {
	switch p.Protocol {
	case v1.ProtocolTCP, "":
		return kernel.TCP, true
	case v1.ProtocolUDP:
		return kernel.UDP, true
	case v1.ProtocolSCTP:
		return kernel.SCTP, true
	}
	c.refuse(UnknownProtocol, "port %d has protocol %q", p.Port, p.Protocol)
	return 0, false
}

// virtual returns the desired virtual server of one address and port.
func (c *computation) virtual(f frontend, p portKey, all byFamily) Virtual {
	endpoints := all[familyOf(f.addr)]
	v := Virtual{Service: c.out.Name, Origin: f.origin, Virtual: kernel.Virtual{
		Key:       kernel.Key{Addr: f.addr, Protocol: p.protocol, Port: p.port},
		Scheduler: c.options.Scheduler,
		Affinity:  affinity(c.svc),
	}}
	local := c.local(f.origin)
	switch {
	case f.origin == FromClusterIP:
		v.Source = kernel.OffCluster
	case local:
		v.Source = kernel.FromNode
	default:
		v.Source = kernel.Masquerade
	}
	if f.origin == FromLoadBalancer {
		v.Clients = c.clients(f.addr)
	}
	chosen, n := choose(endpoints, local, c.options.TerminatingFallback)
	v.Drop = local && n == 0 && c.usableAnywhere(endpoints)
	for i, e := range endpoints {
		if e.local && !slices.Contains(v.Hairpin, e.addr.Addr()) {
			v.Hairpin = append(v.Hairpin, e.addr.Addr())
		}
		if chosen[i] {
			v.Reals = append(v.Reals, e.addr)
		} else {
			v.Leaving = append(v.Leaving, Leaving{Addr: e.addr, Serving: e.serving})
		}
	}
	return v
}

// usableAnywhere reports whether some node of the cluster could answer. If none can, new connections are refused under
// either policy; if only others can, policy Local drops them: kube-proxy's iptables and nftables modes do the same.
func (c *computation) usableAnywhere(endpoints []endpoint) bool {
	_, n := choose(endpoints, false, c.options.TerminatingFallback)
	return n > 0
}

// local reports whether only endpoints of this node may serve an address of this origin.
func (c *computation) local(origin Origin) bool {
	if origin == FromClusterIP {
		p := c.svc.Spec.InternalTrafficPolicy
		return p != nil && *p == v1.ServiceInternalTrafficPolicyLocal
	}
	return c.svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
}

func affinity(svc *v1.Service) time.Duration {
	if svc.Spec.SessionAffinity != v1.ServiceAffinityClientIP {
		return 0
	}
	seconds := v1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil &&
		*c.ClientIP.TimeoutSeconds > 0 {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// clients reads loadBalancerSourceRanges for one address of the balancer; nil when everybody may come. Ranges of the other
// family let nobody of this one in, and neither does one that cannot be read. Where a range has an address of the node,
// what the node itself sends may come too: it has the virtual address as its source, which is the node's own.
func (c *computation) clients(vip netip.Addr) *Clients {
	if len(c.svc.Spec.LoadBalancerSourceRanges) == 0 {
		return nil
	}
	clients := Clients{}
	for _, text := range c.svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Addr().Is4In6() {
			c.refuse(BadSource, "%q is not a range of addresses", text)
			continue
		}
		if familyOf(p.Addr()) != familyOf(vip) {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		clients = append(clients, p.Masked())
		for a := range c.options.Reserved {
			if p.Contains(a) {
				clients = append(clients, netip.PrefixFrom(vip, vip.BitLen()))
			}
		}
	}
	clients = clients.apart()
	return &clients
}

// apart returns the same clients, sorted, without ranges that others contain.
func (c Clients) apart() Clients {
	out := Clients{}
	for _, p := range slices.SortedFunc(slices.Values(c), kernel.ComparePrefixes) {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// healthCheck counts the ready endpoints of this node over all ports, each pod once, as kube-proxy does. A pod of two
// families counts in that of the first cluster IP.
func (c *computation) healthCheck() {
	port := c.svc.Spec.HealthCheckNodePort
	if c.svc.Spec.Type != v1.ServiceTypeLoadBalancer || !c.local(FromLoadBalancer) || port == 0 {
		return
	}
	if port < 1 || port > 65535 {
		c.refuse(BadPort, "healthCheckNodePort %d is outside 1 to 65535", port)
		return
	}
	pods := map[netip.Addr]bool{}
	for i := range c.svc.Spec.Ports {
		for _, e := range c.endpoints(&c.svc.Spec.Ports[i])[c.primary()] {
			if e.local && e.ready {
				pods[e.addr.Addr()] = true
			}
		}
	}
	c.out.HealthCheck = &HealthCheck{Port: uint16(port), Local: len(pods)}
}

func (c *computation) primary() family {
	if a, err := netip.ParseAddr(c.svc.Spec.ClusterIP); err == nil {
		return familyOf(a)
	}
	return ipv4
}

func (c *computation) finish() Service {
	slices.SortFunc(c.out.Refused, Refusal.Compare)
	c.out.Refused = slices.Compact(c.out.Refused)
	return c.out
}
