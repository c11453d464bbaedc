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
			if body.State != "ready" {
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
	case "ready", "unready", "terminating", "exited", "removed":
		life.changes = append(life.changes, podChange{e.At, body.State == "ready"})
	}
}

// addAddress stores the start or exit of a pod's process at an address. A late exit event of the previous pod does not end the next
// one.
func (p pods) addAddress(ip, state, name string, at time.Duration) {
	changes := p.processes[ip]
	switch n := len(changes); {
	case state == "created", state == "started", state == "ready", n == 0, state == "exited" && changes[n-1].pod == name:
		p.processes[ip] = append(changes, processChange{at, name, state == "exited"})
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

// StateRow is the course of one object: the states that it was in.
type StateRow struct {
	Kind  string // of StateKinds
	Name  string // of the object
	Node  string
	Spans []StateSpan
}

// StateSpan is a state from one instant to another one.
type StateSpan struct {
	From, To time.Duration
	Word     string
	Level    Level
}

// Level is what a state means for new connections.
type Level string

// The levels.
const (
	Good     Level = "good"     // accepts new connections
	Changing Level = "changing" // starts or ends
	Bad      Level = "bad"      // accepts none
)

// stateOf is the object that an event is about, and its new state; without a level the object is gone. Other events are about no state.
func (a *Analysis) stateOf(e record.Event) (row StateRow, now StateSpan, is bool) {
	row.Node = NodeOf(e)
	switch body := e.Body.(type) {
	case record.Pod:
		row.Kind, row.Name, now.Word = StatePod, PodOf(e), body.State
		now.Level = map[string]Level{"created": Changing, "started": Changing, "ready": Good, "unready": Bad, "terminating": Changing, "sigterm": Changing, "exited": Bad}[body.State]
		switch body.State {
		case "created", "started":
			now.Word = "starting"
		case "sigterm":
			now.Word = "terminating"
		}
	case record.Endpoint:
		pod := cmp.Or(body.Pod, a.pods.podAt(body.Address, e.At))
		row.Kind, row.Name, now.Word = StateEndpoint, cmp.Or(pod, body.Address), body.State
		if life := a.pods.byName[pod]; life != nil {
			row.Node = cmp.Or(life.node, row.Node)
		}
		now.Level = map[string]Level{"ready": Good, "serving-terminating": Changing, "terminating": Bad, "unready": Bad}[body.State]
	case record.HealthCheck:
		row.Kind, row.Name, now.Word, now.Level = StateHealth, e.Node, "pass", Good
		if body.Result != "pass" {
			now.Word, now.Level = strings.TrimSpace("fail "+body.Status), Bad
		}
	default:
		return row, now, false
	}
	now.From = e.At
	return row, now, row.Name != ""
}

// States are the courses of pods, endpoints and health checks of the Services of measured lanes, and of the membership of nodes: by kind, and
// within a kind by their first change.
func (a *Analysis) States() []StateRow {
	var rows []StateRow
	at := map[[2]string]int{}
	for _, e := range a.Events {
		row, now, is := a.stateOf(e)
		if !is || !a.aboutMeasured(e) {
			continue
		}
		key := [2]string{row.Kind, row.Name}
		i, known := at[key]
		if !known {
			i = len(rows)
			at[key], rows = i, append(rows, row)
		}
		rows[i].change(now)
	}
	for i := range rows {
		rows[i].close(a.End)
	}
	for _, l := range a.Measured() {
		rows = append(rows, a.membershipRows(l, rows)...)
	}
	slices.SortStableFunc(rows, func(x, y StateRow) int {
		if x.Kind == StateHealth && y.Kind == StateHealth {
			return strings.Compare(x.Name, y.Name)
		}
		return cmp.Compare(slices.Index(StateKinds(), x.Kind), slices.Index(StateKinds(), y.Kind))
	})
	return rows
}

// aboutMeasured reports whether an event about a state concerns the Service of a measured lane.
func (a *Analysis) aboutMeasured(e record.Event) bool {
	service := ""
	switch body := e.Body.(type) {
	case record.Pod:
		return a.Serves(PodOf(e))
	case record.Endpoint:
		service = body.Service
	case record.HealthCheck:
		service = e.Object
	}
	return slices.ContainsFunc(a.Measured(), func(l *Lane) bool {
		own := a.serviceOf(l)
		return own == "" || service == "" || sameService(service, own)
	})
}

// change ends the state before, and begins the next one. A state that was known already goes on.
func (r *StateRow) change(now StateSpan) {
	if n := len(r.Spans); n > 0 && r.Spans[n-1].To == 0 {
		if r.Spans[n-1].Word == now.Word {
			return
		}
		r.Spans[n-1].To = max(now.From, 1)
	}
	if now.Level != "" {
		r.Spans = append(r.Spans, now)
	}
}

func (r *StateRow) close(end time.Duration) {
	if n := len(r.Spans); n > 0 && r.Spans[n-1].To == 0 {
		r.Spans[n-1].To = end
	}
}

// membershipRows are the nodes that the load balancer could choose for a lane, unless rows has them already.
func (a *Analysis) membershipRows(l *Lane, rows []StateRow) (own []StateRow) {
	for _, m := range a.Paths.Of(l.Frontend()) {
		for _, node := range m.All {
			known := func(r StateRow) bool { return r.Kind == StateBalancer && r.Name == node }
			if slices.ContainsFunc(rows, known) {
				continue
			}
			i := slices.IndexFunc(own, known)
			if i < 0 {
				i, own = len(own), append(own, StateRow{Kind: StateBalancer, Name: node, Node: node})
			}
			now := StateSpan{From: m.At, Word: "out", Level: Bad}
			if slices.Contains(m.Nodes, node) {
				now.Word, now.Level = "in", Good
			}
			own[i].change(now)
		}
	}
	for i := range own {
		own[i].close(a.End)
	}
	slices.SortStableFunc(own, func(x, y StateRow) int { return strings.Compare(x.Name, y.Name) })
	return own
}

// StatesOf are the rows about an outage: its node's, and those of the pod of its cause; with the backends in the node's kernel table.
func (a *Analysis) StatesOf(o *Outage, all []StateRow) (rows []StateRow) {
	node, pod := a.Nodes[o.node], ""
	if o.cause.suspect != nil {
		pod = o.cause.suspect.pod
	}
	for _, r := range append(slices.Clone(all), a.kernelRow(o)) {
		if len(r.Spans) > 0 && (node == "" || r.Node == node || r.Name == pod) {
			rows = append(rows, r)
		}
	}
	return rows
}
