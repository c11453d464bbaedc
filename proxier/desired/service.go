package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// Compute returns the desired state of one Service. It is empty for a nil Service, a Service without a cluster IP
// (headless, ExternalName) and one that another proxy handles (label service.kubernetes.io/service-proxy-name).
func Compute(name types.NamespacedName, svc *v1.Service, slices []*discovery.EndpointSlice, o Options) Service {
	c := computation{options: o, svc: svc, slices: slices, out: Service{Name: name}}
	if svc == nil || !isProxied(svc) {
		return c.out
	}
	c.out.Created = svc.CreationTimestamp.Time
	c.readFamilies()
	c.scheduler = c.chooseScheduler()
	frontends := c.frontends()
	seen, nodePorts := map[portKey]bool{}, map[portKey]bool{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		endpoints, ok := c.addPort(p, frontends, seen)
		if ok && p.NodePort != 0 {
			c.addNodePort(p, endpoints, nodePorts)
		}
	}
	c.addHealthCheck()
	return c.result()
}

func isProxied(svc *v1.Service) bool {
	if svc.Spec.Type == v1.ServiceTypeExternalName || svc.Spec.ClusterIP == v1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		return false
	}
	_, other := svc.Labels["service.kubernetes.io/service-proxy-name"]
	return !other
}

type computation struct {
	options   Options
	svc       *v1.Service
	slices    []*discovery.EndpointSlice
	families  [2]bool // families of the Service's cluster IPs
	scheduler string  // scheduler of its virtual servers
	out       Service
}

type portKey struct {
	protocol kernel.Protocol
	port     uint16
}

func (c *computation) refuse(reason Reason, format string, args ...any) {
	c.out.Refused = append(c.out.Refused, Refusal{Service: c.out.Name, Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// addPort adds the virtual servers of one Service port, except for its NodePort, and returns its endpoints. It
// returns false if the port was refused.
func (c *computation) addPort(p *v1.ServicePort, frontends []frontend, seen map[portKey]bool) (endpoints byFamily, ok bool) {
	protocol, ok := c.parseProtocol(p)
	if !ok {
		return endpoints, false
	}
	if p.Port < 1 || p.Port > 65535 {
		c.refuse(BadPort, "port %d of the Service is outside 1 to 65535", p.Port)
		return endpoints, false
	}
	key := portKey{protocol, uint16(p.Port)}
	if seen[key] {
		c.refuse(DuplicatePort, "%v port %d is repeated as %q", protocol, p.Port, p.Name)
		return endpoints, false
	}
	seen[key] = true
	endpoints = c.endpoints(p)
	for _, f := range frontends {
		c.out.Virtuals = append(c.out.Virtuals, c.virtualServer(f, key, endpoints))
	}
	return endpoints, true
}

func (c *computation) parseProtocol(p *v1.ServicePort) (kernel.Protocol, bool) {
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

// virtualServer returns the desired virtual server of one address and port.
func (c *computation) virtualServer(f frontend, p portKey, all byFamily) Virtual {
	endpoints := all[familyOf(f.addr)]
	v := Virtual{Service: c.out.Name, Origin: f.origin, Virtual: kernel.Virtual{
		Key:       kernel.Key{Addr: f.addr, Protocol: p.protocol, Port: p.port},
		Scheduler: c.scheduler,
		Affinity:  affinity(c.svc),
	}}
	local := c.localOnly(f.origin)
	switch {
	case f.origin == FromClusterIP:
		v.Source = kernel.OffCluster
	case local:
		v.Source = kernel.FromNode
	default:
		v.Source = kernel.Masquerade
	}
	if f.origin == FromLoadBalancer {
		v.Clients, v.Health = c.allowedClients(f.addr), c.healthCheckPort()
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
			v.Draining = append(v.Draining, DrainingEndpoint{Addr: e.addr, Terminated: e.terminating && !e.serving})
		}
	}
	return v
}

// usableAnywhere reports whether any node has a usable endpoint. Without one, new connections are refused under both
// policies. With endpoints on other nodes only, policy Local drops them, as kube-proxy's iptables and nftables modes
// do.
func (c *computation) usableAnywhere(endpoints []endpoint) bool {
	_, n := choose(endpoints, false, c.options.TerminatingFallback)
	return n > 0
}

// localOnly reports whether only endpoints of this node may serve addresses of this origin.
func (c *computation) localOnly(origin Origin) bool {
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

// healthCheckPort returns the Service's healthCheckNodePort; 0 for none. Some load balancers, such as Google Cloud's,
// check it at their own address.
func (c *computation) healthCheckPort() uint16 {
	port := c.svc.Spec.HealthCheckNodePort
	if c.svc.Spec.Type != v1.ServiceTypeLoadBalancer || !c.localOnly(FromLoadBalancer) || port < 1 || port > 65535 {
		return 0
	}
	return uint16(port)
}

// addHealthCheck lists the ready pods of this node, each once over all ports, as kube-proxy counts them. A dual-stack
// pod has its address in the family of the first cluster IP.
func (c *computation) addHealthCheck() {
	port := c.healthCheckPort()
	if port == 0 {
		if p := c.svc.Spec.HealthCheckNodePort; p != 0 && (p < 1 || p > 65535) && c.localOnly(FromLoadBalancer) {
			c.refuse(BadPort, "healthCheckNodePort %d is outside 1 to 65535", p)
		}
		return
	}
	pods := map[netip.Addr]bool{}
	for i := range c.svc.Spec.Ports {
		for _, e := range c.endpoints(&c.svc.Spec.Ports[i])[c.primaryFamily()] {
			if e.local && e.ready {
				pods[e.addr.Addr()] = true
			}
		}
	}
	c.out.HealthCheck = &HealthCheck{Port: port, Local: slices.SortedFunc(maps.Keys(pods), netip.Addr.Compare)}
}

func (c *computation) primaryFamily() family {
	if a, err := netip.ParseAddr(c.svc.Spec.ClusterIP); err == nil {
		return familyOf(a)
	}
	return ipv4
}

func (c *computation) result() Service {
	slices.SortFunc(c.out.Refused, Refusal.Compare)
	c.out.Refused = slices.Compact(c.out.Refused)
	return c.out
}

// SchedulerAnnotation of a Service selects the IPVS scheduler of its virtual servers.
const SchedulerAnnotation = "hitless/ipvs-scheduler"

// Schedulers returns the supported IPVS schedulers. dh, fo, lblc, lblcr and ovf are not supported: they send all
// clients of an address to one real server, and dh refuses new connections while that one drains.
func Schedulers() []string { return []string{"lc", "mh", "nq", "rr", "sed", "sh", "wlc", "wrr"} }

// KnownScheduler reports whether a scheduler is supported.
func KnownScheduler(name string) bool { return slices.Contains(Schedulers(), name) }

// RequestedScheduler returns the scheduler in a Service's annotation; empty for none.
func RequestedScheduler(svc *v1.Service) string {
	if svc == nil {
		return ""
	}
	return strings.TrimSpace(svc.Annotations[SchedulerAnnotation])
}

// chooseScheduler returns the scheduler of the Service's virtual servers. An unavailable one is refused, and the
// node's is used.
func (c *computation) chooseScheduler() string {
	requested := RequestedScheduler(c.svc)
	if requested == "" {
		return c.options.Scheduler
	}
	if !KnownScheduler(requested) {
		c.refuse(BadScheduler, "scheduler %q is not one of %s; %s is used", requested, strings.Join(Schedulers(), ", "), c.options.Scheduler)
		return c.options.Scheduler
	}
	if why := c.options.UnavailableSchedulers[requested]; why != "" {
		c.refuse(BadScheduler, "%s; %s is used", why, c.options.Scheduler)
		return c.options.Scheduler
	}
	return requested
}
