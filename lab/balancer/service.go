package balancer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service is a Service with an external address of one family.
type service struct {
	frontend
	uid          types.UID
	addr         netip.Addr
	ports        []port
	requests     requests
	checkSpec    checkSpec
	targets      map[string]*target // by node name
	serverHealth map[serverKey]*health
	set          *table // the table that the forwarder has
	recorded     []line // the lines of the last membership events
}

// serverKey identifies a server of a forwarder that runs its own health checks: a node and a port.
type serverKey struct {
	port uint16
	node string
}

// line is the membership of one port, as recorded.
type line struct {
	protocol   corev1.Protocol
	port       uint16
	nodes, all string
	byClient   bool
}

// target is a node and its health for one service.
type target struct {
	checkSpec checkSpec
	health    health
	stop      context.CancelFunc
}

// port is one port of a service.
type port struct {
	protocol corev1.Protocol
	number   uint16
	nodePort uint16 // 0 when the Service allocates none
}

// table is the forwarding of one service: new connections to addr:port go to one of nodes.
type table struct {
	service   string // namespace/name
	addr      netip.Addr
	ports     []port // in the order of the Service
	nodes     []node // healthy, sorted by name
	all       []node // sorted by name
	requests  requests
	checkSpec checkSpec
}

type node struct {
	name   string
	number int // the mark of its flows
	addr   netip.Addr
}

func (t table) equal(o *table) bool {
	return o != nil && t.addr == o.addr && slices.Equal(t.ports, o.ports) && slices.Equal(t.nodes, o.nodes) &&
		slices.Equal(t.all, o.all) && t.requests.equal(o.requests)
}

func (t table) frontend() frontend { return frontend{t.service, record.FamilyOf(t.addr)} }

// isManaged reports whether the balancer serves the Service in a family.
func isManaged(svc *corev1.Service, f record.Family) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil &&
		svc.DeletionTimestamp == nil && len(svc.Spec.Ports) > 0 && hasFamily(svc, f)
}

func keyOf(svc *corev1.Service) string { return svc.Namespace + "/" + svc.Name }

func protocolOf(p corev1.ServicePort) corev1.Protocol { return or(p.Protocol, corev1.ProtocolTCP) }

// waiting is a Service that waits for an address of a family.
type waiting struct {
	family record.Family
	svc    *corev1.Service
}

// serviceChanged handles a new or changed Service.
func (b *Balancer) serviceChanged(svc *corev1.Service) error {
	for _, f := range familiesOf(b.cfg.Net) {
		if err := b.frontendChanged(waiting{f, svc}); err != nil {
			return err
		}
	}
	return nil
}

// frontendChanged handles a new or changed Service in one family.
func (b *Balancer) frontendChanged(w waiting) error {
	id, managed := frontend{keyOf(w.svc), w.family}, isManaged(w.svc, w.family)
	s := b.services[id]
	if s != nil && (s.uid != w.svc.UID || !managed) {
		if !managed {
			b.status.announce(id.service, b.addrs(id.service, w.family))
		}
		if err := b.withdraw(s); err != nil {
			return err
		}
		s = nil
	}
	b.removePending(id)
	if !managed {
		return nil
	}
	if s == nil {
		if s = b.addService(w); s == nil {
			return nil
		}
	}
	return b.update(s, w.svc)
}

// addrs are the external addresses of a Service, but for those of one family.
func (b *Balancer) addrs(service string, without record.Family) (all []netip.Addr) {
	for _, f := range familiesOf(b.cfg.Net) {
		if s := b.services[frontend{service, f}]; s != nil && f != without {
			all = append(all, s.addr)
		}
	}
	return all
}

// serviceDeleted handles the deletion of a Service.
func (b *Balancer) serviceDeleted(key string) error {
	b.status.removePending(key)
	for _, f := range familiesOf(b.cfg.Net) {
		b.removePending(frontend{key, f})
		if s := b.services[frontend{key, f}]; s != nil {
			if err := b.withdraw(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// removePending removes a Service from those that wait for an address.
func (b *Balancer) removePending(id frontend) {
	b.pending = slices.DeleteFunc(b.pending, func(w waiting) bool { return frontend{keyOf(w.svc), w.family} == id })
}

// addService allocates an address for a Service. Without a free address it returns nil and the Service waits.
func (b *Balancer) addService(w waiting) *service {
	addr, err := b.allocate(w)
	if err != nil {
		b.log.Warn("a Service waits for an external address", "service", keyOf(w.svc), "family", w.family, "reason", err)
		b.pending = append(b.pending, w)
		return nil
	}
	s := &service{frontend: frontend{keyOf(w.svc), w.family}, uid: w.svc.UID, addr: addr, targets: map[string]*target{}}
	b.services[s.frontend] = s
	return s
}

// allocate allocates the requested address, else the one in the status, which a restarted balancer must keep, else the
// next one. loadBalancerIP may have an address of each family, separated by a comma.
func (b *Balancer) allocate(w waiting) (netip.Addr, error) {
	key, pool := keyOf(w.svc), b.pools[w.family]
	requested := strings.Split(w.svc.Spec.LoadBalancerIP, ",")
	if address, has := w.family.Among(requested...); has {
		return pool.claim(key, address)
	} else if requested[0] != "" && len(requested) == 1 {
		return pool.claim(key, requested[0])
	}
	for _, in := range w.svc.Status.LoadBalancer.Ingress {
		if addr, err := pool.claim(key, in.IP); err == nil {
			return addr, nil
		}
	}
	return pool.take(key)
}

// update applies the Service to forwarding, health checks and status.
func (b *Balancer) update(s *service, svc *corev1.Service) error {
	s.ports = nil
	for _, p := range svc.Spec.Ports {
		s.ports = append(s.ports, port{protocol: protocolOf(p), number: uint16(p.Port), nodePort: uint16(p.NodePort)})
	}
	if b.cfg.AsCloud {
		s.requests = requestsOf(svc, s.family)
	}
	s.checkSpec = checkSpecFor(svc, b.cfg.CheckTarget, b.cfg.HealthzPort)
	if err := b.follow(s); err != nil {
		return err
	}
	// The status is written last: a published address must forward.
	addrs := b.addrs(s.service, "")
	if !slices.EqualFunc(svc.Status.LoadBalancer.Ingress, addrs, func(in corev1.LoadBalancerIngress, a netip.Addr) bool { return in.IP == a.String() }) {
		b.status.announce(s.service, addrs)
	}
	return nil
}

// withdraw removes a service and offers its address to the waiting ones.
func (b *Balancer) withdraw(s *service) error {
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		s.targets[name].stop()
	}
	delete(b.services, s.frontend)
	from := b.cfg.Now()
	if err := b.path.remove(*s.set); err != nil {
		return err
	}
	b.record(s, table{}, change{from: from, at: b.cfg.Now()})
	b.pools[s.family].release(s.addr)
	pending := b.pending
	b.pending = nil
	for _, w := range pending {
		if err := b.frontendChanged(w); err != nil {
			return err
		}
	}
	return nil
}

// nodeChanged adds a node to the members, or removes it if n is nil.
func (b *Balancer) nodeChanged(name string, n *topology.Node) error {
	if b.members[name] == n {
		return nil
	}
	if n == nil {
		delete(b.members, name)
	} else {
		b.members[name] = n
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.services), compareFrontends) {
		if err := b.follow(b.services[key]); err != nil {
			return err
		}
	}
	return nil
}

// follow applies the current members, ports and health check to a service.
func (b *Balancer) follow(s *service) error {
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		t := s.targets[name]
		if b.members[name] == nil {
			t.stop()
			delete(s.targets, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.members)) {
		t := s.targets[name]
		if t == nil {
			t = &target{stop: func() {}}
			s.targets[name] = t
		}
		if t.checkSpec != s.checkSpec {
			t.stop()
			// The state of the node holds until the results of the new health check.
			t.checkSpec, t.health.streak = s.checkSpec, 0
			b.startChecks(s, b.members[name], t)
		}
	}
	return b.apply(s)
}

// table returns the desired forwarding of a service.
func (b *Balancer) table(s *service) table {
	t := table{service: s.service, addr: s.addr, ports: s.ports, requests: s.requests, checkSpec: s.checkSpec}
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		m := b.members[name]
		n := node{name: name, number: m.Number, addr: m.AddrOf(s.family)}
		t.all = append(t.all, n)
		if s.targets[name].health.up {
			t.nodes = append(t.nodes, n)
		}
	}
	return t
}

// apply passes a changed table to the forwarder and records the change.
func (b *Balancer) apply(s *service) error {
	t := b.table(s)
	if b.path.checksHealth() {
		return b.applyAllUp(s, t)
	}
	if t.equal(s.set) {
		return nil
	}
	from := b.cfg.Now()
	if err := b.path.set(t); err != nil {
		return err
	}
	s.set = &t
	b.record(s, t, change{from: from, at: b.cfg.Now()})
	return nil
}

// applyAllUp is apply for a forwarder with its own health checks: every node is up in a new configuration.
func (b *Balancer) applyAllUp(s *service, t table) error {
	t.nodes = t.all
	if t.equal(s.set) && t.checkSpec == s.set.checkSpec {
		return nil
	}
	from := b.cfg.Now()
	if err := b.path.set(t); err != nil {
		return err
	}
	s.serverHealth = map[serverKey]*health{}
	for _, p := range t.ports {
		for _, n := range t.all {
			s.serverHealth[serverKey{p.number, n.name}] = &health{up: true}
		}
	}
	reloaded := s.set != nil
	s.set = &t
	b.record(s, t, change{from: from, at: b.cfg.Now(), reloaded: reloaded})
	return nil
}
