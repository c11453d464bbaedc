package reports

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// lab is a small model of a lab that makes histories whose truth is known: nodes behind a passthrough balancer, pods
// that come and go, faults, and open-loop lanes. It shares no code with what it tests but PickNode, whose own test asks
// the kernel.
type lab struct {
	run       record.Run
	random    *rand.Rand
	events    []record.Event
	attempts  []record.Attempt
	services  map[netip.AddrPort]*service
	pods      []*simPod
	faults    []fault
	travel    time.Duration // of a first packet from the client to the node
	late      func() time.Duration
	stuck     map[uint16]string // the nodes of the flows of sticky lanes
	moment    time.Duration     // half of what a change of the balancer takes
	log       *balancerLog      // of a balancer that terminates connections; nil for one that passes packets on
	datagrams bool              // the balancer forwards UDP
}

// service is what the balancer knows of one address.
type service struct {
	name  string
	seed  uint32
	local bool
	table []membership
}

type membership struct {
	at    time.Duration
	nodes []string
}

type simPod struct {
	name, node, generation, address, service string
	ready, terminating, gone                 time.Duration
	fallback                                 bool // it is used while it terminates
}

type fault struct {
	node     string // empty for all
	lane     uint16
	anyLane  bool
	from, to time.Duration
	class    record.Class
}

type simLane struct {
	id       uint16
	name     string
	target   netip.AddrPort
	rate     float64
	from, to time.Duration
	control  bool
	protocol string // tcp-new when empty
}

var (
	webAddress    = netip.MustParseAddrPort("203.0.113.10:80")
	canaryAddress = netip.MustParseAddrPort("203.0.113.11:80")
	nodeNames     = []string{"node-1", "node-2", "node-3"}
)

func newLab(seed uint64) *lab {
	s := &lab{random: rand.New(rand.NewPCG(seed, 1)), services: map[netip.AddrPort]*service{}, travel: 150 * time.Microsecond, moment: 400 * time.Microsecond}
	s.late = func() time.Duration { return time.Duration(s.random.IntN(900)) * time.Microsecond }
	s.run = record.Run{Scenario: "rollout", Seed: int64(seed), Clock: "virtual", Kernel: record.Kernel{Kind: "vm", Release: "6.1.0-1-cloud-amd64"},
		Parameters: map[string]string{"replicas": "1", "terminatingFallback": "on", "trafficPolicy": "Local"},
		Subject:    record.Subject{Name: "bundled", Version: "v0.1.0", Mode: "ipvs"}, ControlPlane: "kube", Nodes: nodeNames,
		InputsSha256: strings.Repeat("ab", 32), Command: "hitless run rollout --set trafficPolicy=Local --seed " + strconv.Itoa(int(seed))}
	return s
}

func (s *lab) event(at time.Duration, kind record.Kind, node, object, text string, attrs ...string) {
	e := record.Event{At: at, LegacyKind: kind, Node: node, Object: object, Text: text}
	for i := 0; i+1 < len(attrs); i += 2 {
		if e.Attrs == nil {
			e.Attrs = map[string]string{}
		}
		e.Attrs[attrs[i]] = attrs[i+1]
	}
	s.events = append(s.events, e)
}

func (s *lab) phase(name string, at time.Duration) {
	s.event(at, record.KindPhase, "", name, name+" begins")
}

func (s *lab) step(name string, from, to time.Duration) {
	s.event(from, record.KindStep, "", name, name+" begins", "state", "begin")
	s.event(to, record.KindStep, "", name, name+" is done", "state", "end")
}

// balance changes the balancer's table; the change takes a moment, which the event tells.
func (s *lab) balance(address netip.AddrPort, at time.Duration, nodes ...string) {
	svc := s.services[address]
	svc.table = append(svc.table, membership{at, nodes})
	moment, policy := s.moment, "sticky"
	if s.log != nil {
		policy = "roundrobin"
	}
	s.event(at+moment, record.KindMembership, "", svc.name, "the load balancer sends "+svc.name+" to "+cmp.Or(strings.Join(nodes, ", "), "no node"),
		"service", svc.name, "address", address.Addr().String(), "port", strconv.Itoa(int(address.Port())), "nodes", strings.Join(nodes, ","),
		"all", strings.Join(nodeNames, ","), "policy", policy, "seed", strconv.FormatUint(uint64(svc.seed), 10),
		"fromNs", strconv.FormatInt(int64(max(0, at-moment)), 10))
	if s.datagrams {
		s.events[len(s.events)-1].Attrs["protocol"] = "udp"
	}
}

// pod adds a pod and tells its life.
func (s *lab) pod(p simPod) *simPod {
	s.pods = append(s.pods, &p)
	tell := func(at time.Duration, state string) {
		if at > 0 {
			s.event(at, record.KindPod, p.node, p.name, "pod "+p.name+" is "+state, "state", state, "pod", p.name, "node", p.node, "ip", p.address, "generation", p.generation)
		}
	}
	endpoint := func(at time.Duration, state string) {
		if at > 0 {
			s.event(at+4*time.Millisecond, record.KindEndpoint, "", p.service, "endpoint "+p.address+" is "+state, "service", p.service,
				"address", p.address, "pod", p.name, "state", state)
		}
	}
	tell(p.ready-1500*time.Millisecond, "created")
	tell(p.ready, "ready")
	endpoint(p.ready, "ready")
	tell(p.terminating, "terminating")
	endpoint(p.terminating, "serving-terminating")
	tell(p.gone, "exited")
	return s.pods[len(s.pods)-1]
}

// inject puts a fault on a node (or on all) and tells it.
func (s *lab) inject(id string, f fault, lane string, control bool) {
	s.faults = append(s.faults, f)
	for _, edge := range [...]struct {
		at    time.Duration
		state string
	}{{f.from, "begin"}, {f.to, "end"}} {
		attrs := []string{"fault", "drop", "state", edge.state, "id", id}
		if lane != "" {
			attrs = append(attrs, "lane", lane)
		}
		if control {
			attrs = append(attrs, "control", "true")
		}
		s.event(edge.at, record.KindFault, f.node, id, "fault "+id+" "+edge.state, attrs...)
	}
}

// probe declares a lane and makes its attempts.
func (s *lab) probe(l simLane) {
	svc := s.services[l.target]
	attrs := []string{"id", strconv.Itoa(int(l.id)), "name", l.name, "client", "client", "target", l.target.String(), "protocol", cmp.Or(l.protocol, "tcp-new"),
		"policy", "fresh", "close", "rst", "rate", strconv.FormatFloat(l.rate, 'f', -1, 64), "dialMs", "3000", "replyMs", "1000"}
	if l.control {
		attrs = append(attrs, "control", "true")
	}
	if svc.local {
		attrs = append(attrs, "local", "true")
	}
	s.event(time.Second, record.KindLane, "", l.name, "lane "+l.name, attrs...)
	gap := time.Duration(float64(time.Second) / l.rate)
	for seq := uint64(0); ; seq++ {
		intended := l.from + time.Duration(seq)*gap
		if intended >= l.to {
			if s.log != nil {
				s.log.tell(s, l.target)
			}
			return
		}
		s.attempts = append(s.attempts, s.attempt(l, svc, seq, intended))
	}
}

func (s *lab) attempt(l simLane, svc *service, seq uint64, intended time.Duration) record.Attempt {
	source := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(s.random.IntN(256)), byte(s.random.IntN(256))}), uint16(1024+s.random.IntN(60000)))
	a := record.Attempt{Lane: l.id, Seq: seq, Intended: intended, Start: intended + s.late(), Source: source}
	if s.log != nil {
		return s.terminatedAttempt(a, l, svc)
	}
	node := svc.choose(source, l.target, a.Start)
	if l.protocol == record.ProtocolSticky {
		a.Source, node = s.stick(l, svc, a.Start)
	}
	at := a.Start + s.travel
	for _, f := range s.faults {
		if (f.anyLane || f.lane == l.id) && (f.node == "" || f.node == node) && f.from <= at && at < f.to {
			return failedAttempt(a, f.class)
		}
	}
	p := s.serving(svc, node, at)
	if p == nil {
		return failedAttempt(a, record.Rejected)
	}
	a.Class, a.Connect = record.OK, 2*s.travel+time.Duration(s.random.IntN(100))*time.Microsecond
	a.Total = a.Connect + 300*time.Microsecond + time.Duration(s.random.IntN(2000))*time.Microsecond
	if strings.HasPrefix(l.protocol, "udp") {
		a.Connect = 0
	}
	a.Backend, a.Node, a.Generation = p.name, p.node, p.generation
	if p.terminating > 0 && at > p.terminating {
		a.Terminating = at - p.terminating
	}
	return a
}

// stick is the one five-tuple of a sticky lane, and the node that it goes to: the one that it had, while that is in the table.
func (s *lab) stick(l simLane, svc *service, at time.Duration) (netip.AddrPort, string) {
	source := netip.AddrPortFrom(netip.MustParseAddr("10.200.7.7"), 1024+l.id)
	if s.stuck == nil {
		s.stuck = map[uint16]string{}
	}
	if !slices.Contains(svc.nodes(at), s.stuck[l.id]) {
		s.stuck[l.id] = svc.choose(source, l.target, at)
	}
	return source, s.stuck[l.id]
}

func failedAttempt(a record.Attempt, c record.Class) record.Attempt {
	a.Class = c
	switch c {
	case record.ConnectTimeout:
		a.Total, a.Retrans, a.Detail = 3*time.Second, 2, "ETIMEDOUT"
	case record.Delayed:
		a.Total, a.Connect, a.Retrans = 1010*time.Millisecond, 1008*time.Millisecond, 1
	default:
		a.Total, a.Detail = 400*time.Microsecond, "ECONNREFUSED"
	}
	return a
}

// nodes are those in the balancer's table.
func (v *service) nodes(at time.Duration) []string {
	var nodes []string
	for _, m := range v.table {
		if m.at <= at {
			nodes = m.nodes
		}
	}
	return nodes
}

func (v *service) choose(source, target netip.AddrPort, at time.Duration) string {
	nodes := v.nodes(at)
	if len(nodes) == 0 {
		return ""
	}
	return nodes[record.PickNode(source, target, v.seed, len(nodes))]
}

// serving is the pod that answers on a node: a ready one, else one that terminates and may still be used.
func (s *lab) serving(svc *service, node string, at time.Duration) *simPod {
	var last *simPod
	for _, p := range s.pods {
		if p.service != svc.name || node == "" || (svc.local && p.node != node) || p.ready > at || (p.gone > 0 && p.gone <= at) {
			continue
		}
		if p.terminating == 0 || at < p.terminating {
			return p
		}
		if p.fallback {
			last = p
		}
	}
	return last
}

// built is the history, what is computed of it, and where it came from.
func (s *lab) built(t testing.TB) (*record.History, *Report, record.Origin) {
	t.Helper()
	h := s.write(t)
	r, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	origin, err := h.Origin()
	if err != nil {
		t.Fatal(err)
	}
	return h, r, origin
}

// write records everything in the order in which it became known, and opens it as a history.
func (s *lab) write(t testing.TB) *record.History {
	t.Helper()
	dir := t.TempDir()
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), s.run)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(s.events, func(a, b record.Event) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(s.attempts, func(a, b record.Attempt) int { return cmp.Compare(a.Start+a.Total, b.Start+b.Total) })
	for _, e := range s.events {
		w.Event(e)
	}
	for _, a := range s.attempts {
		w.Attempt(a)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s *lab) report(t testing.TB) *Report {
	t.Helper()
	r, err := Build(s.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rolling is a rollout behind a balancer with health checks, as the first lab does it.
type rolling struct {
	seed     uint64
	fallback bool
	rollouts int
	rate     float64
	noProof  bool
	log      *balancerLog // behind a balancer that terminates connections
}

const (
	baselineAt = 5 * time.Second
	proofAt    = 20 * time.Second
	scenarioAt = 25 * time.Second
	rolloutFor = 25 * time.Second
	checkOut   = 12300 * time.Millisecond // from the pod's end until the balancer takes its node out
)

func (o rolling) settleAt() time.Duration { return scenarioAt + time.Duration(o.rollouts)*rolloutFor }
func (o rolling) endAt() time.Duration    { return o.settleAt() + 20*time.Second }

// lab builds the whole run, but for the attempts of the measured lane: those come with start, so that a test can add
// faults and events before.
func (o rolling) lab() *lab {
	s := newLab(o.seed)
	s.log = o.log
	if !o.fallback {
		s.run.Parameters["terminatingFallback"] = "off"
		s.run.Command += " --set terminatingFallback=off"
	}
	s.services[webAddress] = &service{name: "default/web", seed: 7, local: true}
	s.services[canaryAddress] = &service{name: "hitless/canary", seed: 7, local: true}
	for i, node := range nodeNames {
		s.pod(simPod{name: fmt.Sprintf("canary-%d", i+1), node: node, generation: "canary", address: fmt.Sprintf("10.244.%d.2", i+1), service: "hitless/canary", ready: 2 * time.Second})
		s.event(1500*time.Millisecond, record.KindProxy, node, "bundled", "the proxy on "+node+" is ready", "state", "ready")
	}
	s.balance(canaryAddress, 2100*time.Millisecond, nodeNames...)
	s.phase("baseline", baselineAt)
	s.phase("proof", proofAt)
	s.phase("scenario", scenarioAt)
	s.phase("settle", o.settleAt())
	s.phase("end", o.endAt())
	if !o.noProof {
		s.inject("proof-20", fault{lane: 1, from: proofAt + time.Second, to: proofAt + 1020*time.Millisecond, class: record.Delayed}, "canary", true)
		s.inject("proof-200", fault{lane: 1, from: proofAt + 2*time.Second, to: proofAt + 2200*time.Millisecond, class: record.Delayed}, "canary", true)
	}
	o.roll(s)
	return s
}

func (o rolling) roll(s *lab) {
	pod := simPod{name: "web-5d9f-aaaa1", node: nodeNames[0], generation: "5d9f", address: "10.244.1.9", service: "default/web", ready: 3 * time.Second, fallback: o.fallback}
	s.balance(webAddress, 3200*time.Millisecond, pod.node)
	for i := range o.rollouts {
		at := scenarioAt + time.Duration(i)*rolloutFor + time.Second
		next := simPod{name: fmt.Sprintf("web-%dc7b-bbbb%d", i, i), node: nodeNames[(i+1)%3], generation: fmt.Sprintf("%dc7b", i),
			address: fmt.Sprintf("10.244.%d.%d", (i+1)%3+1, 10+i), service: "default/web", ready: at + 1800*time.Millisecond, fallback: o.fallback}
		s.step("roll out generation "+strconv.Itoa(i+2), at, at+20*time.Second)
		s.event(at+10*time.Millisecond, record.KindRollout, "", "web", "rollout of web begins", "state", "begin", "generation", next.generation)
		s.balance(webAddress, next.ready+800*time.Millisecond, nodesInOrder(pod.node, next.node)...)
		s.event(next.ready+799*time.Millisecond, record.KindHealthCheck, next.node, "web", "health check of "+next.node+" passes", "result", "pass")
		pod.terminating = next.ready + time.Second
		pod.gone = pod.terminating + 18*time.Second
		s.event(pod.terminating+checkOut-time.Millisecond, record.KindHealthCheck, pod.node, "web", "health check of "+pod.node+" fails", "result", "fail", "status", "503")
		s.balance(webAddress, pod.terminating+checkOut, next.node)
		s.event(pod.gone+100*time.Millisecond, record.KindRollout, "", "web", "rollout of web is complete", "state", "end", "generation", next.generation)
		s.pod(pod)
		pod = next
	}
	s.pod(pod)
}

func nodesInOrder(nodes ...string) []string {
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// start makes the attempts of all lanes.
func (o rolling) start(s *lab) *lab {
	rate := cmp.Or(o.rate, 100)
	s.probe(simLane{id: 0, name: "web", target: webAddress, rate: rate, from: baselineAt + 3*time.Millisecond, to: o.endAt()})
	s.probe(simLane{id: 1, name: "canary", target: canaryAddress, rate: rate, from: baselineAt + 5*time.Millisecond, to: scenarioAt, control: true})
	return s
}
