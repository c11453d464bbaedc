package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// EdgeReport is a step of an outage's chain: what happened at one instant led to what happened at another one.
type EdgeReport struct {
	Number int         `json:"number"` // from 1, in order of the clauses
	From   PointReport `json:"from"`
	To     PointReport `json:"to"`
	Clause string      `json:"clause"` // the part of the cause's text that refers to the edge
}

// PointReport is one end of an edge.
type PointReport struct {
	At    float64 `json:"at"`    // seconds
	State string  `json:"state"` // the row of states that it is on, see StateKinds
	Text  string  `json:"text"`
}

// explanation is the cause of an outage in clauses, the last of them about its end.
type explanation struct {
	why, end []string
	edges    []EdgeReport
}

func (e *explanation) text() string { return strings.Join(slices.Concat(e.why, e.end), "; ") }

func (e *explanation) ended() string { return strings.Join(e.end, "; ") }

func (e *explanation) edge(clause string, from, to PointReport) {
	e.edges = append(e.edges, EdgeReport{Number: len(e.edges) + 1, From: from, To: to, Clause: clause})
}

func point(at time.Duration, state, text string) PointReport {
	return PointReport{At: units.Seconds(at), State: state, Text: text}
}

// explained describes the cause in clauses without capital letter and full stop, with an edge for each clause about two instants. It adds how
// the outage ended, if it did not end by itself.
func (a *Analysis) explained(o *Outage) *explanation {
	e := &explanation{}
	first := point(o.from, StateAttempts, "first failure")
	text := "nothing in the record explains it"
	if s := o.cause.suspect; s != nil {
		text = a.suspectText(o, s)
		if o.cause.or != nil {
			text += ", or " + a.suspectText(o, o.cause.or) + ": the kernel was not asked which pod it chose"
		}
		e.edge(text, point(s.at, s.state(), s.what), first)
	}
	rule, emptied, known := a.ruleText(o)
	if rule != "" && o.cause.suspect == nil {
		text = "no event explains it, but " + rule
	}
	e.why = append(e.why, text)
	if rule != "" && o.cause.suspect != nil {
		e.why = append(e.why, rule)
	}
	if rule != "" && known {
		e.edge(rule, point(emptied, StateKernel, "table of "+a.Nodes[o.node]), first)
	}
	if whose := podsText(a.podsBeside(o)); whose != "" {
		e.why = append(e.why, whose)
	}
	if seen := a.freshBeside(o); seen.tried > 0 {
		e.why = append(e.why, seen.text(o))
	}
	a.explainEnd(o, e)
	return e
}

func (a *Analysis) explainEnd(o *Outage, e *explanation) {
	switch {
	case o.left > 0:
		out := point(o.left, StateBalancer, a.Nodes[o.node]+" removed")
		if check, status := a.failingCheck(o); check > 0 {
			clause := fmt.Sprintf("%s failed its health checks from %s on%s", a.Nodes[o.node], units.At(units.Seconds(check)), status)
			e.edge(clause, point(check, StateHealth, "first failed check"), out)
			e.end = append(e.end, clause)
		}
		clause := fmt.Sprintf("it ended when the load balancer took %s out at %s", a.Nodes[o.node], units.At(units.Seconds(o.left)))
		e.edge(clause, out, point(o.to, StateAttempts, "last failure"))
		e.end = append(e.end, clause)
	case o.open:
		e.end = append(e.end, "it lasted until the lane ended")
	}
}

// state is the row of states that a candidate is on.
func (s *Candidate) state() string {
	switch s.kind {
	case record.KindPod:
		return StatePod
	case record.KindEndpoint:
		return StateEndpoint
	case record.KindKernelChange:
		return StateKernel
	case record.KindHealthCheck:
		return StateHealth
	case record.KindMembership:
		return StateBalancer
	}
	return StateEvent
}

// unexplainedKind is the kind of an outage without a cause.
const unexplainedKind = "no event explains it"

// onlyLocalPod is the kind of an outage of a node without another pod.
const onlyLocalPod = "the only local pod started terminating"

// kindText is the cause without the names of objects: the outages of a soak are grouped by it.
func (a *Analysis) kindText(o *Outage) string {
	s := o.cause.suspect
	if s == nil {
		return unexplainedKind
	}
	switch {
	case s.kind == record.KindPod && s.event == "pod terminating" && a.pods.onlyReady(s.pod, s.at):
		return onlyLocalPod
	case s.kind == record.KindPod:
		return "a pod " + FirstOf(podPhrases[record.PodState(strings.TrimPrefix(s.event, "pod "))], s.event)
	case s.kind == record.KindEndpoint && s.event == "endpoint removed":
		return "an endpoint was removed"
	case s.kind == record.KindEndpoint:
		return "an endpoint became " + strings.TrimPrefix(s.event, "endpoint ")
	case s.kind == record.KindKernelChange:
		return "a backend was changed in the kernel's table (" + strings.TrimPrefix(s.event, "kernel ") + ")"
	case s.event == "proxy exited" && s.kind == record.KindMembership:
		return "the proxies exited, and the load balancer removed its last node"
	case s.node != "":
		return strings.ReplaceAll(strings.ReplaceAll(s.what, " on "+s.node, ""), s.node, "a node")
	}
	return s.what
}
