package desired

import (
	"fmt"
	"net/netip"
	"slices"
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
	c.sched = c.scheduler()
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
	sched   string  // the scheduler of its virtual servers
	out     Service
}

type portKey struct {
	protocol kernel.Protocol
	port     uint16
}

func (c *computation) refuse(reason Reason, format string, args ...any) {
	c.out.Refused = append(c.out.Refused, Refusal{Service: c.out.Name, Reason: reason, Detail: fmt.Sprintf(format, args...)})
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
		Scheduler: c.sched,
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
		v.Clients, v.Health = c.clients(f.addr), c.healthPort()
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
			v.Leaving = append(v.Leaving, Leaving{Addr: e.addr, Ended: e.terminating && !e.serving})
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

// healthPort returns the Service's healthCheckNodePort; 0 when it has none. A balancer may ask for it at its own address,
// as that of Google Cloud does.
func (c *computation) healthPort() uint16 {
	port := c.svc.Spec.HealthCheckNodePort
	if c.svc.Spec.Type != v1.ServiceTypeLoadBalancer || !c.local(FromLoadBalancer) || port < 1 || port > 65535 {
		return 0
	}
	return uint16(port)
}

// healthCheck counts the ready endpoints of this node over all ports, each pod once, as kube-proxy does. A pod of two
// families counts in that of the first cluster IP.
func (c *computation) healthCheck() {
	port := c.healthPort()
	if port == 0 {
		if p := c.svc.Spec.HealthCheckNodePort; p != 0 && (p < 1 || p > 65535) && c.local(FromLoadBalancer) {
			c.refuse(BadPort, "healthCheckNodePort %d is outside 1 to 65535", p)
		}
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
	c.out.HealthCheck = &HealthCheck{Port: port, Local: len(pods)}
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
