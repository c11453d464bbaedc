package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// pods has the data of pods from the events: node, Services, and times of readiness.
type pods struct {
	byName    map[string]*podLife
	processes map[string][]processChange // by the pod's address, in order of time
}

// processChange is the start or exit of the process of a pod at an address. Pods reuse addresses.
type processChange struct {
	at     time.Duration
	pod    string
	exited bool
}

type podLife struct {
	node     string
	services []string
	changes  []podChange
	left     []time.Duration // when its endpoint became unready or was removed
}

type podChange struct {
	at    time.Duration
	ready bool
}

func podsOf(events []record.Event) pods {
	p := pods{byName: map[string]*podLife{}, processes: map[string][]processChange{}}
	for _, e := range events {
		switch body := e.Body.(type) {
		case record.Pod:
			p.addPod(e, body)
		case record.Endpoint:
			name := cmp.Or(body.Pod, p.podAt(body.Address, e.At))
			if name == "" || body.Service == "" {
				continue
			}
			life := p.life(name)
			if !slices.Contains(life.services, body.Service) {
				life.services = append(life.services, body.Service)
			}
			if body.State != record.EndpointReady {
				life.node = cmp.Or(life.node, NodeOf(e))
				life.left = append(life.left, e.At)
			}
		}
	}
	return p
}

func (p pods) addPod(e record.Event, body record.Pod) {
	name := PodOf(e)
	life := p.life(name)
	life.node = cmp.Or(NodeOf(e), life.node)
	for _, ip := range []string{body.IP, body.SecondIP} {
		if ip != "" {
			p.addAddress(ip, body.State, name, e.At)
		}
	}
	switch body.State {
	case record.PodReady, record.PodUnready, record.PodTerminating, record.PodExited, record.PodRemoved:
		life.changes = append(life.changes, podChange{e.At, body.State == record.PodReady})
	}
}

// addAddress stores the start or exit of a pod's process at an address. A late exit event of the previous pod does not end the next
// one.
func (p pods) addAddress(ip string, state record.PodState, name string, at time.Duration) {
	changes := p.processes[ip]
	switch n := len(changes); {
	case state == record.PodCreated, state == record.PodStarted, state == record.PodReady, n == 0, state == record.PodExited && changes[n-1].pod == name:
		p.processes[ip] = append(changes, processChange{at, name, state == record.PodExited})
	}
}

// podAt is the pod that had an address at an instant: the last one that started by then, or else the first known one, because the
// event that names a pod may come late.
func (p pods) podAt(address string, at time.Duration) (name string) {
	for i, c := range p.processes[address] {
		if i > 0 && c.at > at {
			break
		}
		name = c.pod
	}
	return name
}

func (p pods) life(name string) *podLife {
	if p.byName[name] == nil {
		p.byName[name] = &podLife{}
	}
	return p.byName[name]
}

// onlyReady reports whether the pod was the only one on its node that was ready for any of its services just before at.
func (p pods) onlyReady(name string, at time.Duration) bool {
	life := p.byName[name]
	if life == nil || life.node == "" || len(life.services) == 0 {
		return false
	}
	for other, l := range p.byName {
		if other != name && l.node == life.node && l.readyBefore(at) && slices.ContainsFunc(l.services, life.serves) {
			return false
		}
	}
	return true
}

func (p pods) isOn(node, name string) bool {
	return p.byName[name] != nil && p.byName[name].node == node
}

// leftEndpoints reports whether a pod of a Service on a node ceased to be a ready endpoint between two instants.
func (p pods) leftEndpoints(node, service string, from, to time.Duration) bool {
	for _, l := range p.byName {
		between := func(at time.Duration) bool { return from <= at && at <= to }
		if l.node == node && l.serves(service) && slices.ContainsFunc(l.left, between) {
			return true
		}
	}
	return false
}

func (l *podLife) serves(service string) bool {
	return slices.ContainsFunc(l.services, func(s string) bool { return sameService(s, service) })
}

func (l *podLife) readyBefore(at time.Duration) bool {
	ready := false
	for _, c := range l.changes {
		if c.at >= at {
			break
		}
		ready = c.ready
	}
	return ready
}

// exitOf is when the process of the pod at an address exited, if it had exited by then and did not start again.
func (p pods) exitOf(address netip.Addr, name string, by time.Duration) (at time.Duration, exited bool) {
	for _, c := range p.processes[address.String()] {
		if c.at > by {
			break
		}
		if c.pod == name {
			at, exited = c.at, c.exited
		}
	}
	return at, exited
}

// Move is a change of the pod that answers a lane.
type Move struct {
	At       time.Duration // when the first attempt that the new pod answered started
	From, To string        // pods
	Stayed   bool          // From was ready from the begin of the scenario until then
}

// Moves are the changes of the pod that answers a lane, in order of time. They tell about lanes that send all their attempts in one flow.
func (a *Analysis) Moves(l *Lane) (all []Move) {
	pod := ""
	for i := range l.Records {
		r := &l.Records[i]
		if r.Class != record.OK || r.Backend == 0 {
			continue
		}
		by := a.Backends[r.Backend].Name
		if pod != "" && by != pod {
			all = append(all, Move{r.Start(), pod, by, a.stayedReady(pod, r.Start())})
		}
		pod = by
	}
	return all
}

// stayedReady reports whether a pod had no other state than ready from the begin of the scenario until a time.
func (a *Analysis) stayedReady(pod string, until time.Duration) bool {
	scenario := false
	for _, e := range a.Events {
		switch b := e.Body.(type) {
		case record.Phase:
			scenario = scenario || e.Object == "scenario"
		case record.Pod:
			if scenario && b.Pod == pod && e.At <= until && b.State != record.PodReady {
				return false
			}
		}
	}
	return true
}

// PodOf is the pod of an event; empty for none.
func PodOf(e record.Event) string {
	switch body := e.Body.(type) {
	case record.Pod:
		return cmp.Or(body.Pod, e.Object)
	case record.Endpoint:
		return body.Pod
	}
	return ""
}

// NodeOf is the node of an event; empty for none.
func NodeOf(e record.Event) string {
	if pod, is := e.Body.(record.Pod); is {
		return cmp.Or(e.Node, pod.Node)
	}
	return e.Node
}

// sameService compares names of Services of which one may lack the namespace; a port behind a colon does not count.
func sameService(a, b string) bool {
	a, _, _ = strings.Cut(a, ":")
	b, _, _ = strings.Cut(b, ":")
	if strings.Contains(a, "/") != strings.Contains(b, "/") {
		a, b = a[strings.Index(a, "/")+1:], b[strings.Index(b, "/")+1:]
	}
	return a == b
}
