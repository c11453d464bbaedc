package analysis

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// StateKinds are the rows of states of an outage, in the order in which a change passes them.
func StateKinds() []string {
	return []string{StateEvent, StateEndpoint, StatePod, StateKernel, StateLog, StateHealth, StateBalancer, StateAttempts}
}

// The rows of states.
const (
	StateEvent    = "event"    // of other kinds: proxies, nodes, faults, Services
	StateEndpoint = "endpoint" // in the API
	StatePod      = "pod"
	StateKernel   = "kernel" // backends in the node's table
	StateLog      = "log"    // lines of the proxy
	StateHealth   = "health"
	StateBalancer = "balancer" // membership
	StateAttempts = "attempts"
)

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
		row.Kind, row.Name, now.Word = StatePod, PodOf(e), string(body.State)
		now.Level = map[record.PodState]Level{record.PodCreated: Changing, record.PodStarted: Changing, record.PodReady: Good, record.PodUnready: Bad,
			record.PodTerminating: Changing, record.PodSigterm: Changing, record.PodExited: Bad}[body.State]
		switch body.State {
		case record.PodCreated, record.PodStarted:
			now.Word = "starting"
		case record.PodSigterm:
			now.Word = "terminating"
		}
	case record.Endpoint:
		pod := cmp.Or(body.Pod, a.pods.podAt(body.Address, e.At))
		row.Kind, row.Name, now.Word = StateEndpoint, cmp.Or(pod, body.Address), string(body.State)
		if life := a.pods.byName[pod]; life != nil {
			row.Node = cmp.Or(life.node, row.Node)
		}
		now.Level = map[record.EndpointState]Level{record.EndpointReady: Good, record.EndpointServingTerminating: Changing,
			record.EndpointTerminating: Bad, record.EndpointUnready: Bad}[body.State]
	case record.HealthCheck:
		row.Kind, row.Name, now.Word, now.Level = StateHealth, e.Node, "pass", Good
		if body.Result != record.HealthPass {
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

// kernelRow are the states of the virtual server that an outage's attempts met: how many backends accept new connections.
func (a *Analysis) kernelRow(o *Outage) StateRow {
	row := StateRow{Kind: StateKernel, Name: "in " + modeNames[a.proxyMode(o)], Node: a.Nodes[o.node]}
	for _, t := range a.kernelOf(o) {
		n := 0
		for _, s := range t.backends {
			if s.Weight > 0 {
				n++
			}
		}
		now := StateSpan{From: t.at, Word: units.Plural(n, "backend"), Level: Good}
		if n == 0 {
			now.Word, now.Level = "no backend", Bad
		}
		row.change(now)
	}
	row.close(a.End)
	return row
}
