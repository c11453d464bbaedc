package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Candidate is an event that can take traffic away, with the weight of its kind.
type Candidate struct {
	at      time.Duration
	until   time.Duration // for faults: the end; 0 when unknown or when the effect has no end of its own
	weight  float64       // 0 to 1: how likely such an event by itself costs connections
	event   string        // kind and state: "pod terminating"
	what    string        // a clause in the past tense, without the time
	node    string        // where it happened; empty when it is not about one node
	service string        // the service that it concerns; empty when it concerns all
	lane    string        // for faults meant for one lane
	pod     string
	kind    record.Kind
	backend bool // it is about a pod that is known to serve something
	// anywhere says that it explains failures behind an external load balancer, which may have chosen its node.
	anywhere bool
	// standing says that it goes on to take traffic away until its end, and explains what fails as late as that.
	standing bool
}

// weights are those of events by kind and state: what ends a backend or breaks the proxy weighs most, then what announces it, then what
// only follows from it. They decide between events of about the same age; see suspects.best.
var weights = map[string]float64{
	"pod terminating": 0.95, "pod exited": 0.88, "pod unready": 0.85, "pod sigterm": 0.8, "pod removed": 0.5,
	"endpoint serving-terminating": 0.7, "endpoint terminating": 0.7, "endpoint unready": 0.7, "endpoint removed": 0.6,
	"proxy flushed": 0.97, "proxy cleanup": 0.97, "proxy killed": 0.9, "proxy exited": 0.9, "proxy stopped": 0.9, "proxy blocked": 0.9, "proxy started": 0.5,
	"proxy ready": 0.4, "proxy continued": 0.4, "proxy restored": 0.4, "proxy unblocked": 0.4, "proxy synced": 0.25,
	"node removed": 0.9, "node unready": 0.8, "node cordoned": 0.2,
	"service deleted": 0.96, "service changed": 0.6, "service created": 0.4,
	"kernel removed": 0.55, "kernel weight": 0.45,
	nodeOff: 0.99, "foreign begin": 0.98, "balancer empty": 0.95, "balancer reloaded": 0.6, "balancer entered": 0.4, "health fail": 0.3,
}

// The phrases for states of pods, proxies and nodes.
var (
	podPhrases = map[record.PodState]string{record.PodTerminating: "started terminating", record.PodExited: "exited", record.PodUnready: "became unready",
		record.PodSigterm: "got SIGTERM", record.PodRemoved: "was removed"}
	proxyPhrases = map[record.ProxyState]string{record.ProxyFlushed: "had its tables emptied", record.ProxyRestored: "had its tables put back",
		record.ProxyBlocked: "could no longer write its rules", record.ProxyUnblocked: "could write its rules again", record.ProxyExited: "exited",
		record.ProxyStarted: "started", record.ProxyReady: "became ready",
		record.ProxyCleanup: "began to clean up", record.ProxyContinued: "was continued", record.ProxySynced: "wrote its tables"}
	nodePhrases = map[record.NodeState]string{record.NodeRemoved: "was removed from the cluster", record.NodeUnready: "became unready", record.NodeCordoned: "was cordoned"}
)

// weightInjected is the weight of the faults that a proof or a scenario injects.
const weightInjected = 1.0

// suspectsOf lists the suspects among the events by the node they happened on, each list in order of time, and those that
// stand apart. What ends because its node lost power is no suspect beside that loss.
func (a *Analysis) suspectsOf() (byNode map[string][]Candidate, standing []Candidate) {
	byNode = map[string][]Candidate{}
	last := map[record.Frontend][]string{} // the load balancer's members
	dark := map[string]bool{}              // the nodes without power
	exits := map[string]record.Event{}     // of the proxies that have ended, by node
	for _, e := range a.Events {
		var found []Candidate
		switch body := e.Body.(type) {
		case record.Node:
			if body.State == record.NodeOff || body.State == record.NodeOn {
				dark[e.Node] = body.State == record.NodeOff
			}
		case record.Proxy, record.Pod:
			if dark[NodeOf(e)] {
				continue
			}
			noteExit(exits, e)
		case record.Membership:
			key := record.NewFrontend(body.Address, body.Port, body.Protocol)
			if before, known := last[key]; known {
				found = membershipSuspects(e, body, before, exits)
			}
			last[key] = body.Nodes
		}
		if s := a.suspectOf(e); s.standing {
			standing = append(standing, s)
		} else if s.weight > 0 {
			found = []Candidate{s}
		}
		for _, s := range found {
			byNode[s.node] = append(byNode[s.node], s)
		}
	}
	return byNode, standing
}

// noteExit keeps the exits of proxies that have not started again.
func noteExit(exits map[string]record.Event, e record.Event) {
	switch body, _ := e.Body.(record.Proxy); body.State {
	case record.ProxyExited:
		exits[e.Node] = e
	case record.ProxyStarted:
		delete(exits, e.Node)
	}
}

func membershipSuspects(e record.Event, body record.Membership, before []string, exits map[string]record.Event) []Candidate {
	s, now := Candidate{at: e.At, kind: e.Kind(), service: body.Service}, body.Nodes
	if len(now) == 0 && len(before) > 0 {
		s.event, s.what = "balancer empty", "the load balancer removed its last node"
		s.weight = weights[s.event]
		if text := exitsText(e.At, exits, before); text != "" { // the removal is only what followed
			s.event, s.what = "proxy exited", text+", and "+s.what
		}
		return []Candidate{s}
	}
	var found []Candidate
	if body.Reloaded {
		again := s
		again.event = "balancer reloaded"
		again.weight = weights[again.event]
		again.what = "the load balancer restarted, with every node considered healthy until its first check,"
		found = append(found, again)
	}
	for _, node := range now {
		if !slices.Contains(before, node) {
			s.event, s.node = "balancer entered", node
			s.weight = weights[s.event]
			s.what = "the load balancer added " + node
			found = append(found, s)
		}
	}
	return found
}

// exitsText tells which of some nodes have no proxy, and how the last of those ended; empty for none.
func exitsText(at time.Duration, exits map[string]record.Event, nodes []string) string {
	var gone []string
	var last record.Event
	for _, node := range nodes {
		if e, has := exits[node]; has {
			gone = append(gone, node)
			if e.At >= last.At {
				last = e
			}
		}
	}
	if len(gone) == 0 {
		return ""
	}
	return fmt.Sprintf("the proxy on %s had exited (the last one %s before: %s)", strings.Join(gone, " and "), units.MsText(units.Millis(at-last.At)), last.Text)
}

// suspectOf weighs an event. Kinds that explain nothing by themselves have no weight.
func (a *Analysis) suspectOf(e record.Event) Candidate {
	s := Candidate{at: e.At, kind: e.Kind(), node: NodeOf(e)}
	on := ""
	if s.node != "" {
		on = " on " + s.node
	}
	switch body := e.Body.(type) {
	case record.Pod:
		s.pod, s.event = PodOf(e), "pod "+string(body.State)
		s.what = "pod " + s.pod + on + " " + podPhrases[body.State]
		s.backend = a.servesSomething(s.pod)
	case record.Endpoint:
		a.endpointSuspect(e, body, &s)
	case record.Service:
		s.service, s.event, s.what = body.Service, "service "+string(body.State), e.Text
		if body.State == record.ServiceDeleted {
			s.standing, s.backend = true, true
			s.until = a.after(e, func(later record.Event) bool {
				again := later.Body.(record.Service)
				return again.State == record.ServiceCreated && again.Service == body.Service
			})
		}
	case record.Proxy:
		s.event = "proxy " + string(body.State)
		s.what = "the proxy" + on + " " + cmp.Or(proxyPhrases[body.State], "was "+string(body.State))
		s.anywhere = true
	case record.KernelChange:
		s.service, s.event = body.Service, "kernel "+string(body.Change)
		s.what = fmt.Sprintf("backend %s was changed in the %s table%s (%s)", body.Backend, body.Table, on, body.Change)
	case record.Fault:
		a.faultSuspect(e, body, &s, on)
	case record.Node:
		s.event, s.what, s.anywhere = "node "+string(body.State), s.node+" "+nodePhrases[body.State], true
		if body.State == record.NodeOff {
			s.what, s.standing, s.backend = s.node+" lost power", true, true
			s.until = a.after(e, func(later record.Event) bool {
				return later.Node == e.Node && later.Body.(record.Node).State == record.NodeOn
			})
		}
	case record.Interference:
		if body.State == record.InterferenceBegin {
			s.event, s.what, s.standing, s.backend = "foreign begin", body.What, true, true
			s.until = a.after(e, func(later record.Event) bool {
				end := later.Body.(record.Interference)
				return end.ID == body.ID && end.State == record.InterferenceEnd
			})
		}
	case record.HealthCheck:
		if body.Result == record.HealthFail {
			s.event, s.what = "health fail", "the health check"+on+" failed"
		}
	}
	s.weight = cmp.Or(s.weight, weights[s.event])
	return s
}

func (a *Analysis) endpointSuspect(e record.Event, body record.Endpoint, s *Candidate) {
	s.service, s.pod = body.Service, cmp.Or(body.Pod, a.pods.podAt(body.Address, e.At))
	if life := a.pods.byName[s.pod]; life != nil {
		s.node = cmp.Or(life.node, s.node)
	}
	s.event = "endpoint " + string(body.State)
	s.what = "endpoint " + cmp.Or(s.pod, body.Address) + " became " + string(body.State)
	if body.State == record.EndpointRemoved {
		s.what = "endpoint " + cmp.Or(s.pod, body.Address) + " was removed"
	}
	s.backend = a.servesSomething(s.pod)
}

// servesSomething reports whether a pod is known to be an endpoint of any Service.
func (a *Analysis) servesSomething(pod string) bool {
	life := a.pods.byName[pod]
	return life != nil && len(life.services) > 0
}

// after is when the first event of the same kind after e fits, 0 when none does.
func (a *Analysis) after(e record.Event, fits func(later record.Event) bool) time.Duration {
	for _, later := range a.Events {
		if later.Kind() == e.Kind() && later.At >= e.At && fits(later) {
			return later.At
		}
	}
	return 0
}

func (a *Analysis) faultSuspect(e record.Event, body record.Fault, s *Candidate, on string) {
	if body.Control || body.State != record.FaultBegin {
		return
	}
	s.weight, s.lane, s.event = weightInjected, body.Lane, "injected "+body.Fault
	s.what = "a known fault (" + body.Fault + ") was injected" + on
	s.until = a.after(e, func(later record.Event) bool {
		end := later.Body.(record.Fault)
		return end.ID == body.ID && end.State == record.FaultEnd
	})
}

// concerns reports whether the suspect can have to do with a lane behind the given service.
func (s *Candidate) concerns(l *Lane, service string, known pods) bool {
	if s.lane != "" && s.lane != l.Name {
		return false
	}
	if s.service != "" {
		if address, err := netip.ParseAddrPort(s.service); err == nil {
			return !l.Address.IsValid() || address == l.Address
		}
		return service == "" || sameService(s.service, service)
	}
	if life := known.byName[s.pod]; s.pod != "" && service != "" && life != nil && len(life.services) > 0 {
		return life.serves(service)
	}
	return true
}

// CauseEvents returns the events that can be the cause of an outage, as CauseReport.Event has them, in order.
func CauseEvents() []string {
	events := slices.Collect(maps.Keys(weights))
	for _, fault := range [...]string{"drop", "refuse", "reset", "wrong", "flush"} {
		events = append(events, "injected "+fault)
	}
	slices.Sort(events)
	return events
}
