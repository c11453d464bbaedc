// Package recordtest makes records whose outages and causes are known, for tests of what reads records.
package recordtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Lab is a small model of a lab that makes histories whose truth is known: nodes behind a passthrough balancer, pods
// that come and go, faults, and open-loop lanes. It shares no code with what it tests but PickNode, whose own test asks
// the kernel.
type Lab struct {
	Run       record.Run
	Random    *rand.Rand
	Events    []Event
	Attempts  []record.Attempt
	Services  map[netip.AddrPort]*Service
	Pods      []*Pod
	Faults    []Fault
	Travel    time.Duration // of a first packet from the client to the node
	Late      func() time.Duration
	stuck     map[uint16]string // the nodes of the flows of sticky lanes
	Moment    time.Duration     // half of what a change of the balancer takes
	Log       *BalancerLog      // of a balancer that terminates connections; nil for one that passes packets on
	Datagrams bool              // the balancer forwards UDP
}

// Service is what the balancer knows of one address.
type Service struct {
	Name  string
	Seed  uint32
	Local bool
	table []membership
}

type membership struct {
	at    time.Duration
	nodes []string
}

type Pod struct {
	Name, Node, generation, Address, Service string
	Ready, Terminating, Gone                 time.Duration
	fallback                                 bool // it is used while it terminates
}

type Fault struct {
	Node     string // empty for all
	Lane     uint16
	AnyLane  bool
	From, To time.Duration
	Class    record.Class
}

type Lane struct {
	ID       uint16
	Name     string
	Target   netip.AddrPort
	Rate     float64
	From, To time.Duration
	Control  bool
	Protocol string // tcp-new when empty
}

var (
	WebAddress    = netip.MustParseAddrPort("203.0.113.10:80")
	CanaryAddress = netip.MustParseAddrPort("203.0.113.11:80")
	NodeNames     = []string{"node-1", "node-2", "node-3"}
)

func NewLab(seed uint64) *Lab {
	s := &Lab{Random: rand.New(rand.NewPCG(seed, 1)), Services: map[netip.AddrPort]*Service{}, Travel: 150 * time.Microsecond, Moment: 400 * time.Microsecond}
	s.Late = func() time.Duration { return time.Duration(s.Random.IntN(900)) * time.Microsecond }
	s.Run = record.Run{Scenario: "rollout", Seed: int64(seed), Clock: "virtual", Kernel: record.Kernel{Kind: "vm", Release: "6.1.0-1-cloud-amd64", QEMU: "7.2.22 (Debian 1:7.2)"},
		Parameters: map[string]string{"replicas": "1", "terminatingFallback": "on", "trafficPolicy": "Local"},
		Subject:    record.Subject{Name: "bundled", Version: "v0.1.0", Mode: "ipvs"}, ControlPlane: record.ControlKube, Nodes: NodeNames,
		InputsSha256: strings.Repeat("ab", 32), Command: "hitless run rollout --set trafficPolicy=Local --seed " + strconv.Itoa(int(seed))}
	return s
}

func (s *Lab) Event(at time.Duration, kind record.Kind, node, object, text string, attrs ...string) {
	e := Event{At: at, Kind: kind, Node: node, Object: object, Text: text}
	for i := 0; i+1 < len(attrs); i += 2 {
		if e.Attrs == nil {
			e.Attrs = map[string]string{}
		}
		e.Attrs[attrs[i]] = attrs[i+1]
	}
	s.Events = append(s.Events, e)
}

func (s *Lab) Phase(name string, at time.Duration) {
	s.Event(at, record.KindPhase, "", name, name+" begins")
}

func (s *Lab) Step(name string, from, to time.Duration) {
	s.Event(from, record.KindStep, "", name, name+" begins", "state", "begin")
	s.Event(to, record.KindStep, "", name, name+" is done", "state", "end")
}

// Balance changes the balancer's table; the change takes a moment, which the event tells.
func (s *Lab) Balance(address netip.AddrPort, at time.Duration, nodes ...string) {
	svc := s.Services[address]
	svc.table = append(svc.table, membership{at, nodes})
	moment, policy := s.Moment, "sticky"
	if s.Log != nil {
		policy = "roundrobin"
	}
	s.Event(at+moment, record.KindMembership, "", svc.Name, fmt.Sprintf("%s at %s goes to %s (of %s)", svc.Name, address, cmp.Or(strings.Join(nodes, ","), "no node"), strings.Join(NodeNames, ",")),
		"service", svc.Name, "address", address.Addr().String(), "port", strconv.Itoa(int(address.Port())), "nodes", strings.Join(nodes, ","),
		"all", strings.Join(NodeNames, ","), "policy", policy, "seed", strconv.FormatUint(uint64(svc.Seed), 10),
		"fromNs", strconv.FormatInt(int64(max(0, at-moment)), 10))
	if s.Datagrams {
		s.Events[len(s.Events)-1].Attrs["protocol"] = "udp"
	}
}

// Pod adds a pod and tells its life.
func (s *Lab) Pod(p Pod) *Pod {
	s.Pods = append(s.Pods, &p)
	tell := func(at time.Duration, state string) {
		if at > 0 {
			s.Event(at, record.KindPod, p.Node, p.Name, "pod "+p.Name+" is "+state, "state", state, "pod", p.Name, "node", p.Node, "ip", p.Address, "generation", p.generation)
		}
	}
	endpoint := func(at time.Duration, state string) {
		if at > 0 {
			s.Event(at+4*time.Millisecond, record.KindEndpoint, "", p.Service, "endpoint "+p.Address+" is "+state, "service", p.Service,
				"address", p.Address, "pod", p.Name, "state", state)
		}
	}
	tell(p.Ready-1500*time.Millisecond, "created")
	tell(p.Ready, "ready")
	endpoint(p.Ready, "ready")
	tell(p.Terminating, "terminating")
	endpoint(p.Terminating, "serving-terminating")
	tell(p.Gone, "exited")
	return s.Pods[len(s.Pods)-1]
}

// inject puts a fault on a node (or on all) and tells it.
func (s *Lab) inject(id string, f Fault, lane string, control bool) {
	s.Faults = append(s.Faults, f)
	for _, edge := range [...]struct {
		at    time.Duration
		state string
	}{{f.From, "begin"}, {f.To, "end"}} {
		attrs := []string{"fault", "drop", "state", edge.state, "id", id}
		if lane != "" {
			attrs = append(attrs, "lane", lane)
		}
		if control {
			attrs = append(attrs, "control", "true")
		}
		s.Event(edge.at, record.KindFault, f.Node, id, "fault "+id+" "+edge.state, attrs...)
	}
}

// Probe declares a lane and makes its attempts.
func (s *Lab) Probe(l Lane) {
	svc := s.Services[l.Target]
	attrs := []string{"id", strconv.Itoa(int(l.ID)), "name", l.Name, "client", "client", "target", l.Target.String(), "protocol", cmp.Or(l.Protocol, "tcp-new"),
		"policy", "fresh", "close", "rst", "rate", strconv.FormatFloat(l.Rate, 'f', -1, 64), "dialMs", "3000", "replyMs", "1000"}
	if l.Control {
		attrs = append(attrs, "control", "true")
	}
	if svc.Local {
		attrs = append(attrs, "local", "true")
	}
	s.Event(time.Second, record.KindLane, "", l.Name, "lane "+l.Name, attrs...)
	gap := time.Duration(float64(time.Second) / l.Rate)
	for seq := uint64(0); ; seq++ {
		intended := l.From + time.Duration(seq)*gap
		if intended >= l.To {
			if s.Log != nil {
				s.Log.tell(s, l.Target)
			}
			return
		}
		s.Attempts = append(s.Attempts, s.Attempt(l, svc, seq, intended))
	}
}

func (s *Lab) Attempt(l Lane, svc *Service, seq uint64, intended time.Duration) record.Attempt {
	source := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(s.Random.IntN(256)), byte(s.Random.IntN(256))}), uint16(1024+s.Random.IntN(60000)))
	a := record.Attempt{Lane: l.ID, Seq: seq, Intended: intended, Start: intended + s.Late(), Source: source}
	if s.Log != nil {
		return s.terminatedAttempt(a, l, svc)
	}
	node := svc.Choose(source, l.Target, a.Start)
	if l.Protocol == record.ProtocolSticky {
		a.Source, node = s.stick(l, svc, a.Start)
	}
	at := a.Start + s.Travel
	for _, f := range s.Faults {
		if (f.AnyLane || f.Lane == l.ID) && (f.Node == "" || f.Node == node) && f.From <= at && at < f.To {
			return FailedAttempt(a, f.Class)
		}
	}
	p := s.serving(svc, node, at)
	if p == nil {
		return FailedAttempt(a, record.Rejected)
	}
	a.Class, a.Connect = record.OK, 2*s.Travel+time.Duration(s.Random.IntN(100))*time.Microsecond
	a.Total = a.Connect + 300*time.Microsecond + time.Duration(s.Random.IntN(2000))*time.Microsecond
	if record.Datagrams(l.Protocol) {
		a.Connect = 0
	}
	a.Backend, a.Node, a.Generation, a.Client = p.Name, p.Node, p.generation, record.ClientUnchanged
	if p.Terminating > 0 && at > p.Terminating {
		a.Terminating = at - p.Terminating
	}
	return a
}

// stick is the one five-tuple of a sticky lane, and the node that it goes to: the one that it had, while that is in the table.
func (s *Lab) stick(l Lane, svc *Service, at time.Duration) (netip.AddrPort, string) {
	source := netip.AddrPortFrom(netip.MustParseAddr("10.200.7.7"), 1024+l.ID)
	if s.stuck == nil {
		s.stuck = map[uint16]string{}
	}
	if !slices.Contains(svc.nodes(at), s.stuck[l.ID]) {
		s.stuck[l.ID] = svc.Choose(source, l.Target, at)
	}
	return source, s.stuck[l.ID]
}

func FailedAttempt(a record.Attempt, c record.Class) record.Attempt {
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
func (v *Service) nodes(at time.Duration) []string {
	var nodes []string
	for _, m := range v.table {
		if m.at <= at {
			nodes = m.nodes
		}
	}
	return nodes
}

func (v *Service) Choose(source, target netip.AddrPort, at time.Duration) string {
	nodes := v.nodes(at)
	if len(nodes) == 0 {
		return ""
	}
	return nodes[record.PickNode(source, target, v.Seed, len(nodes))]
}

// serving is the pod that answers on a node: a ready one, else one that terminates and may still be used.
func (s *Lab) serving(svc *Service, node string, at time.Duration) *Pod {
	var last *Pod
	for _, p := range s.Pods {
		if p.Service != svc.Name || node == "" || (svc.Local && p.Node != node) || p.Ready > at || (p.Gone > 0 && p.Gone <= at) {
			continue
		}
		if p.Terminating == 0 || at < p.Terminating {
			return p
		}
		if p.fallback {
			last = p
		}
	}
	return last
}

// Write records everything in the order in which it became known, and opens it as a history without a seal.
func (s *Lab) Write(t testing.TB) *record.History {
	t.Helper()
	dir := t.TempDir()
	w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(s.Attempts, func(a, b record.Attempt) int { return cmp.Compare(a.Start+a.Total, b.Start+b.Total) })
	for _, a := range s.Attempts {
		w.Attempt(a)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "history", record.EventsFile), linesOf(t, s.Events), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Rollout is a rollout behind a balancer with health checks, as the first lab does it.
type Rollout struct {
	Seed     uint64
	Fallback bool
	Rollouts int
	Rate     float64
	NoProof  bool
	Every    time.Duration // from one rollout to the next, RolloutFor or longer
	Log      *BalancerLog  // behind a balancer that terminates connections
}

const (
	BaselineAt = 5 * time.Second
	ProofAt    = 20 * time.Second
	ScenarioAt = 25 * time.Second
	RolloutFor = 25 * time.Second
	CheckOut   = 12300 * time.Millisecond // from the pod's end until the balancer takes its node out
)

func (o Rollout) every() time.Duration    { return cmp.Or(o.Every, RolloutFor) }
func (o Rollout) settleAt() time.Duration { return ScenarioAt + time.Duration(o.Rollouts)*o.every() }
func (o Rollout) EndAt() time.Duration    { return o.settleAt() + 20*time.Second }

// Lab builds the whole run, but for the attempts of the measured lane: those come with start, so that a test can add
// faults and events before.
func (o Rollout) Lab() *Lab {
	s := NewLab(o.Seed)
	s.Log = o.Log
	if !o.Fallback {
		s.Run.Parameters["terminatingFallback"] = "off"
		s.Run.Command += " --set terminatingFallback=off"
	}
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7, Local: true}
	s.Services[CanaryAddress] = &Service{Name: "hitless/canary", Seed: 7, Local: true}
	for i, node := range NodeNames {
		s.Pod(Pod{Name: fmt.Sprintf("canary-%d", i+1), Node: node, generation: "canary", Address: fmt.Sprintf("10.244.%d.2", i+1), Service: "hitless/canary", Ready: 2 * time.Second})
		s.Event(1500*time.Millisecond, record.KindProxy, node, "bundled", "the proxy on "+node+" is ready", "state", "ready")
	}
	s.Balance(CanaryAddress, 2100*time.Millisecond, NodeNames...)
	s.Phase("baseline", BaselineAt)
	s.Phase("proof", ProofAt)
	s.Phase("scenario", ScenarioAt)
	s.Phase("settle", o.settleAt())
	s.Phase("end", o.EndAt())
	if !o.NoProof {
		s.inject("proof-20", Fault{Lane: 1, From: ProofAt + time.Second, To: ProofAt + 1020*time.Millisecond, Class: record.Delayed}, "canary", true)
		s.inject("proof-200", Fault{Lane: 1, From: ProofAt + 2*time.Second, To: ProofAt + 2200*time.Millisecond, Class: record.Delayed}, "canary", true)
	}
	o.roll(s)
	return s
}

func (o Rollout) roll(s *Lab) {
	pod := Pod{Name: "web-5d9f-aaaa1", Node: NodeNames[0], generation: "5d9f", Address: "10.244.1.9", Service: "default/web", Ready: 3 * time.Second, fallback: o.Fallback}
	s.Balance(WebAddress, 3200*time.Millisecond, pod.Node)
	for i := range o.Rollouts {
		at := ScenarioAt + time.Duration(i)*o.every() + time.Second
		next := Pod{Name: fmt.Sprintf("web-%dc7b-bbbb%d", i, i), Node: NodeNames[(i+1)%3], generation: fmt.Sprintf("%dc7b", i),
			Address: fmt.Sprintf("10.%d.%d.%d", 244+i/240, (i+1)%3+1, 10+i%240), Service: "default/web", Ready: at + 1800*time.Millisecond, fallback: o.Fallback}
		s.Step("roll out generation "+strconv.Itoa(i+2), at, at+20*time.Second)
		s.Event(at+10*time.Millisecond, record.KindRollout, "", "web", "rollout of web begins", "state", "begin", "generation", next.generation)
		s.Balance(WebAddress, next.Ready+800*time.Millisecond, NodesInOrder(pod.Node, next.Node)...)
		s.Event(next.Ready+799*time.Millisecond, record.KindHealthCheck, next.Node, "web", "health check of "+next.Node+" passes", "result", "pass")
		pod.Terminating = next.Ready + time.Second
		pod.Gone = pod.Terminating + 18*time.Second
		s.Event(pod.Terminating+CheckOut-time.Millisecond, record.KindHealthCheck, pod.Node, "web", "health check of "+pod.Node+" fails", "result", "fail", "status", "503")
		s.Balance(WebAddress, pod.Terminating+CheckOut, next.Node)
		s.Event(pod.Gone+100*time.Millisecond, record.KindRollout, "", "web", "rollout of web is complete", "state", "end", "generation", next.generation)
		s.Pod(pod)
		pod = next
	}
	s.Pod(pod)
}

func NodesInOrder(nodes ...string) []string {
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Start makes the attempts of all lanes.
func (o Rollout) Start(s *Lab) *Lab {
	rate := cmp.Or(o.Rate, 100)
	s.Probe(Lane{ID: 0, Name: "web", Target: WebAddress, Rate: rate, From: BaselineAt + 3*time.Millisecond, To: o.EndAt()})
	s.Probe(Lane{ID: 1, Name: "canary", Target: CanaryAddress, Rate: rate, From: BaselineAt + 5*time.Millisecond, To: ScenarioAt, Control: true})
	return s
}
