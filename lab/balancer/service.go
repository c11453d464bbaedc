package balancer

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/hitless/hitless/lab/topology"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service is one Service that has an external address.
type service struct {
	key      string // namespace/name
	uid      types.UID
	addr     netip.Addr
	ports    []port
	question question
	targets  map[string]*target // by name of the node
	judged   map[judgedKey]*health
	set      *table // what the forwarder was given last
	written  []line // what the history was told last
}

// judgedKey is what a forwarder that judges health itself judges: a node for one port.
type judgedKey struct {
	port uint16
	node string
}

// line is a table for one port as it stands in the history.
type line struct {
	protocol   corev1.Protocol
	port       uint16
	nodes, all string
}

// target is one node as a service sees it.
type target struct {
	question question
	health   health
	stop     context.CancelFunc
}

// port is one port of a service.
type port struct {
	protocol corev1.Protocol
	number   uint16
	nodePort uint16 // 0 when the Service allocates none
}

// table is the forwarding of one service: new connections to addr:port go to one of nodes.
type table struct {
	service  string
	addr     netip.Addr
	ports    []port // in the order of the Service
	nodes    []node // healthy, sorted by name
	all      []node // sorted by name
	question question
}

type node struct {
	name   string
	number int // the mark of its flows
	addr   netip.Addr
}

func (t table) equal(o *table) bool {
	return o != nil && t.addr == o.addr && slices.Equal(t.ports, o.ports) && slices.Equal(t.nodes, o.nodes) &&
		slices.Equal(t.all, o.all)
}

// wanted reports whether the Service is this balancer's.
func wanted(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil &&
		svc.DeletionTimestamp == nil && len(svc.Spec.Ports) > 0 &&
		(len(svc.Spec.IPFamilies) == 0 || slices.Contains(svc.Spec.IPFamilies, corev1.IPv4Protocol))
}

func keyOf(svc *corev1.Service) string { return svc.Namespace + "/" + svc.Name }

func protocolOf(p corev1.ServicePort) corev1.Protocol { return or(p.Protocol, corev1.ProtocolTCP) }

// changed takes a Service as it is now.
func (b *Balancer) changed(svc *corev1.Service) error {
	key := keyOf(svc)
	s := b.services[key]
	if s != nil && (s.uid != svc.UID || !wanted(svc)) {
		if !wanted(svc) {
			b.status.announce(key, netip.Addr{})
		}
		if err := b.withdraw(s); err != nil {
			return err
		}
		s = nil
	}
	b.forget(key)
	if !wanted(svc) {
		return nil
	}
	if s == nil {
		if s = b.admit(svc); s == nil {
			return nil
		}
	}
	return b.update(s, svc)
}

// gone takes the deletion of a Service.
func (b *Balancer) gone(key string) error {
	b.forget(key)
	b.status.forget(key)
	if s := b.services[key]; s != nil {
		return b.withdraw(s)
	}
	return nil
}

// forget takes a Service from those that wait for an address.
func (b *Balancer) forget(key string) {
	b.pending = slices.DeleteFunc(b.pending, func(p *corev1.Service) bool { return keyOf(p) == key })
}

// admit gives a Service its address, or has it wait for one (nil).
func (b *Balancer) admit(svc *corev1.Service) *service {
	addr, err := b.allocate(svc)
	if err != nil {
		b.log.Warn("a Service waits for an external address", "service", keyOf(svc), "reason", err)
		b.pending = append(b.pending, svc)
		return nil
	}
	s := &service{key: keyOf(svc), uid: svc.UID, addr: addr, targets: map[string]*target{}}
	b.services[s.key] = s
	return s
}

// allocate takes the address that the Service asks for; else the one that its status still names, so that a restarted
// balancer changes none; else the next one.
func (b *Balancer) allocate(svc *corev1.Service) (netip.Addr, error) {
	key := keyOf(svc)
	if wish := svc.Spec.LoadBalancerIP; wish != "" {
		return b.pool.claim(key, wish)
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if addr, err := b.pool.claim(key, in.IP); err == nil {
			return addr, nil
		}
	}
	return b.pool.take(key)
}

// update makes forwarding, checks and status follow the Service.
func (b *Balancer) update(s *service, svc *corev1.Service) error {
	s.ports = nil
	for _, p := range svc.Spec.Ports {
		s.ports = append(s.ports, port{protocol: protocolOf(p), number: uint16(p.Port), nodePort: uint16(p.NodePort)})
	}
	s.question = questionFor(svc, b.cfg.CheckTarget, b.cfg.HealthzPort)
	if err := b.follow(s); err != nil {
		return err
	}
	// Only now, so that nobody reads an address that forwards nothing yet.
	if in := svc.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != s.addr.String() {
		b.status.announce(s.key, s.addr)
	}
	return nil
}

// withdraw takes a service's address back, and gives it to one that waits.
func (b *Balancer) withdraw(s *service) error {
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		s.targets[name].stop()
	}
	delete(b.services, s.key)
	from := b.cfg.Now()
	if err := b.path.remove(*s.set); err != nil {
		return err
	}
	b.record(s, table{}, change{from: from, at: b.cfg.Now()})
	b.pool.release(s.addr)
	waiting := b.pending
	b.pending = nil
	for _, svc := range waiting {
		if err := b.changed(svc); err != nil {
			return err
		}
	}
	return nil
}

// member takes that a node joins (node not nil) or leaves those behind the balancer.
func (b *Balancer) member(name string, n *topology.Node) error {
	if b.members[name] == n {
		return nil
	}
	if n == nil {
		delete(b.members, name)
	} else {
		b.members[name] = n
	}
	for _, key := range slices.Sorted(maps.Keys(b.services)) {
		if err := b.follow(b.services[key]); err != nil {
			return err
		}
	}
	return nil
}

// follow brings a service's targets and table to the present members, ports and question.
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
		if t.question != s.question {
			t.stop()
			// What was known of the node stays true until the new question has its answers.
			t.question, t.health.streak = s.question, 0
			b.startChecks(s, b.members[name], t)
		}
	}
	return b.apply(s)
}

// table is what the service's forwarding must be.
func (b *Balancer) table(s *service) table {
	t := table{service: s.key, addr: s.addr, ports: s.ports, question: s.question}
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		m := b.members[name]
		n := node{name: name, number: m.Number, addr: m.Addr}
		t.all = append(t.all, n)
		if s.targets[name].health.up {
			t.nodes = append(t.nodes, n)
		}
	}
	return t
}

// apply gives the forwarder the service's table when it has changed, and records that.
func (b *Balancer) apply(s *service) error {
	t := b.table(s)
	if b.path.judges() {
		return b.applyUnjudged(s, t)
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

// applyUnjudged is apply for a forwarder that judges health itself: each new configuration starts with every node up.
func (b *Balancer) applyUnjudged(s *service, t table) error {
	t.nodes = t.all
	if t.equal(s.set) && t.question == s.set.question {
		return nil
	}
	from := b.cfg.Now()
	if err := b.path.set(t); err != nil {
		return err
	}
	s.judged = map[judgedKey]*health{}
	for _, p := range t.ports {
		for _, n := range t.all {
			s.judged[judgedKey{p.number, n.name}] = &health{up: true}
		}
	}
	again := s.set != nil
	s.set = &t
	b.record(s, t, change{from: from, at: b.cfg.Now(), reloaded: again})
	return nil
}
