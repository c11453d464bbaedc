package reports

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// suspect is an event that can take traffic away, with the weight of its kind.
type suspect struct {
	at      time.Duration
	until   time.Duration // for faults: the end; 0 when unknown or when the effect has no end of its own
	weight  float64       // 0 to 1: how likely such an event by itself costs connections
	event   string        // kind and state: "pod terminating"
	what    string        // a clause in the past tense, without the time
	node    string        // where it happened; empty when it is not about one node
	service string        // the service that it concerns; empty when it concerns all
	lane    string        // for faults meant for one lane
	pod     string
	kind    Kind
	backend bool // it is about a pod that is known to serve something
	// standing says that it goes on to take traffic away until its end, and explains what fails as late as that.
	standing bool
}

// The weights of the kinds: what ends a backend or breaks the proxy weighs most, then what announces it, then what only
// follows from it. They decide between events of about the same age; see suspects.best.
var (
	podWeights = map[string]float64{"terminating": 0.95, "exited": 0.88, "unready": 0.85, "sigterm": 0.8, "removed": 0.5}
	podPhrases = map[string]string{"terminating": "started terminating", "exited": "exited", "unready": "became unready",
		"sigterm": "got SIGTERM", "removed": "was removed"}
	endpointWeights = map[string]float64{"serving-terminating": 0.7, "terminating": 0.7, "unready": 0.7, "removed": 0.6}
	proxyWeights    = map[string]float64{"flushed": 0.97, "cleanup": 0.97, "killed": 0.9, "exited": 0.9, "stopped": 0.9, "started": 0.5,
		"ready": 0.4, "continued": 0.4, "restored": 0.4, "synced": 0.25}
	proxyPhrases = map[string]string{"flushed": "had its tables emptied", "restored": "had its tables put back", "exited": "exited",
		"started": "started", "ready": "became ready", "cleanup": "began to clean up", "continued": "was continued", "synced": "wrote its tables"}
	serviceWeights = map[string]float64{"deleted": 0.96, "changed": 0.6, "created": 0.4}
	kernelWeights  = map[string]float64{"removed": 0.55, "weight": 0.45}
)

const (
	weightInjected = 1.0
	weightPower    = 0.99
	weightForeign  = 0.98
	weightNoNodes  = 0.95
	weightReloaded = 0.6
	weightEntered  = 0.4
	weightHealth   = 0.3
)

// suspectsOf lists the suspects among the events by the node they happened on, each list in order of time, and those that
// stand apart. What ends because its node lost power is no suspect beside that loss.
func (a *analysis) suspectsOf() (byNode map[string][]suspect, standing []suspect) {
	byNode = map[string][]suspect{}
	last := map[string][]string{} // the balancer's nodes by address and port
	dark := map[string]bool{}     // the nodes without power
	for _, e := range a.events {
		if state := e.Attrs["state"]; e.Kind == EventNode && state != "" {
			dark[e.Node] = state == "off"
		}
		var found []suspect
		if (e.Kind == EventProxy || e.Kind == EventPod) && dark[nodeOf(e)] {
			continue
		}
		if e.Kind == EventBalancer {
			key := e.Attrs["address"] + " " + e.Attrs["port"] + " " + e.Attrs["protocol"]
			now := list(e.Attrs["nodes"])
			if before, known := last[key]; known {
				found = balancerSuspects(e, before, now)
			}
			last[key] = now
		} else if s := a.suspectOf(e); s.standing {
			standing = append(standing, s)
		} else if s.weight > 0 {
			found = []suspect{s}
		}
		for _, s := range found {
			byNode[s.node] = append(byNode[s.node], s)
		}
	}
	return byNode, standing
}

func balancerSuspects(e Event, before, now []string) []suspect {
	s := suspect{at: e.At, kind: e.Kind, service: e.Attrs["service"]}
	if len(now) == 0 && len(before) > 0 {
		s.weight, s.event, s.what = weightNoNodes, "balancer empty", "the load balancer took its last node out"
		return []suspect{s}
	}
	var found []suspect
	if e.Attrs["reloaded"] == "true" {
		again := s
		again.weight, again.event = weightReloaded, "balancer reloaded"
		again.what = "the load balancer started anew, with every node taken as healthy until its first check,"
		found = append(found, again)
	}
	for _, node := range now {
		if !slices.Contains(before, node) {
			s.weight, s.event, s.node = weightEntered, "balancer entered", node
			s.what = "the load balancer put " + node + " in"
			found = append(found, s)
		}
	}
	return found
}

func (a *analysis) suspectOf(e Event) suspect {
	state := e.Attrs["state"]
	s := suspect{at: e.At, kind: e.Kind, node: nodeOf(e), service: e.Attrs["service"], pod: podOf(e), event: string(e.Kind) + " " + state}
	on := ""
	if s.node != "" {
		on = " on " + s.node
	}
	switch e.Kind {
	case EventPod:
		s.weight = podWeights[state]
		s.what = "pod " + s.pod + on + " " + podPhrases[state]
	case EventEndpoint:
		if s.pod == "" {
			s.pod = a.pods.podAt(e.Attrs["address"], e.At)
		}
		if life := a.pods.byName[s.pod]; life != nil {
			s.node = cmp.Or(life.node, s.node)
		}
		s.weight = endpointWeights[state]
		s.what = "endpoint " + cmp.Or(s.pod, e.Attrs["address"]) + " became " + state
		if state == "removed" {
			s.what = "endpoint " + cmp.Or(s.pod, e.Attrs["address"]) + " was removed"
		}
	case EventService:
		s.weight, s.what = serviceWeights[state], e.Text
		if state == "deleted" {
			s.standing, s.backend = true, true
			s.until = a.after(e, func(later Event) bool { return later.Attrs["state"] == "created" })
			return s
		}
	case EventProxy:
		s.weight, s.what = proxyWeights[state], "the proxy"+on+" "+cmp.Or(proxyPhrases[state], "was "+state)
	case EventKernel:
		s.weight, s.event = kernelWeights[e.Attrs["change"]], "kernel "+e.Attrs["change"]
		s.what = fmt.Sprintf("backend %s was changed in the %s table%s (%s)", e.Attrs["backend"], e.Attrs["table"], on, e.Attrs["change"])
	case EventInjected:
		a.injectedSuspect(e, &s, on)
	case EventNode:
		if state == "off" {
			s.weight, s.what, s.standing, s.backend = weightPower, s.node+" lost power", true, true
			s.until = a.after(e, func(later Event) bool { return later.Node == e.Node && later.Attrs["state"] == "on" })
		}
		return s
	case EventForeign:
		if state == "begin" {
			s.weight, s.what, s.standing, s.backend = weightForeign, e.Attrs["what"], true, true
			s.until = a.after(e, func(later Event) bool { return later.Attrs["id"] == e.Attrs["id"] && later.Attrs["state"] == "end" })
		}
		return s
	case EventHealth:
		if e.Attrs["result"] == "fail" {
			s.weight, s.event, s.what = weightHealth, "health fail", "the health check"+on+" failed"
		}
	}
	life := a.pods.byName[s.pod]
	s.backend = (e.Kind == EventPod || e.Kind == EventEndpoint) && life != nil && len(life.services) > 0
	return s
}

// after is when the first event of the same kind after e fits, 0 when none does.
func (a *analysis) after(e Event, fits func(later Event) bool) time.Duration {
	for _, later := range a.events {
		if later.Kind == e.Kind && later.At >= e.At && fits(later) {
			return later.At
		}
	}
	return 0
}

func (a *analysis) injectedSuspect(e Event, s *suspect, on string) {
	if e.Attrs["control"] == "true" || e.Attrs["state"] != "begin" {
		return
	}
	s.weight, s.lane, s.event = weightInjected, e.Attrs["lane"], "injected "+e.Attrs["fault"]
	s.what = "a known fault (" + e.Attrs["fault"] + ") was injected" + on
	s.until = a.after(e, func(later Event) bool { return later.Attrs["id"] == e.Attrs["id"] && later.Attrs["state"] == "end" })
}

// concerns reports whether the suspect can have to do with a lane behind the given service.
func (s *suspect) concerns(l *lane, service string, known pods) bool {
	if s.lane != "" && s.lane != l.name {
		return false
	}
	if s.service != "" {
		if address, err := netip.ParseAddrPort(s.service); err == nil {
			return !l.address.IsValid() || address == l.address
		}
		return service == "" || sameService(s.service, service)
	}
	if life := known.byName[s.pod]; s.pod != "" && service != "" && life != nil && len(life.services) > 0 {
		return life.serves(service)
	}
	return true
}
