package reports

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// pods is what the events tell of the pods: where they run, what they serve, and when they were ready.
type pods struct {
	byName    map[string]*podLife
	processes map[string][]processChange // by the pod's address, in order of time
}

// processChange is when the process of a pod behind an address began or exited. An address goes from pod to pod.
type processChange struct {
	at     time.Duration
	pod    string
	exited bool
}

type podLife struct {
	node     string
	services []string
	changes  []podChange
}

type podChange struct {
	at    time.Duration
	ready bool
}

func podsOf(events []Event) pods {
	p := pods{byName: map[string]*podLife{}, processes: map[string][]processChange{}}
	for _, e := range events {
		name := podOf(e)
		switch e.Kind {
		case EventPod:
			life := p.life(name)
			if node := nodeOf(e); node != "" {
				life.node = node
			}
			if ip := e.Attrs["ip"]; ip != "" {
				p.takeAddress(ip, name, e)
			}
			switch state := e.Attrs["state"]; state {
			case "ready", "unready", "terminating", "exited", "removed":
				life.changes = append(life.changes, podChange{e.At, state == "ready"})
			}
		case EventEndpoint:
			if name == "" {
				name = p.podAt(e.Attrs["address"], e.At)
			}
			if s := e.Attrs["service"]; name != "" && s != "" {
				life := p.life(name)
				if !slices.Contains(life.services, s) {
					life.services = append(life.services, s)
				}
			}
		}
	}
	return p
}

// takeAddress takes note of an event of a pod at an address. What tells of a pod's end does not give it an address that another one
// has meanwhile: it may be told late.
func (p pods) takeAddress(ip, name string, e Event) {
	changes, state := p.processes[ip], e.Attrs["state"]
	switch n := len(changes); {
	case state == "created", state == "started", state == "ready", n == 0, state == "exited" && changes[n-1].pod == name:
		p.processes[ip] = append(changes, processChange{e.At, name, state == "exited"})
	}
}

// podAt is the pod that had an address at an instant: the last one that began there by then; if none had, the first that is known
// there, as an event may come before the one that names its pod.
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

// exitOf is when the process of a pod behind an address exited, if it had by then and has not begun again.
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

// podOf is the pod that an event is about, if any.
func podOf(e Event) string {
	if pod := e.Attrs["pod"]; pod != "" || e.Kind != EventPod {
		return pod
	}
	return e.Object
}

// nodeOf is the node that an event happened on, if it says so.
func nodeOf(e Event) string {
	if e.Node != "" {
		return e.Node
	}
	return e.Attrs["node"]
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
