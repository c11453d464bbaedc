// Package reports holds the record of a run and everything that is computed from it: the history of events and
// attempts, the checkers, the verdict, attribution, comparison and the renderers.
//
// The package imports nothing else of hitless, so that a history can be judged again long after the run, by any
// program. It is not for running anything.
package reports

import (
	"net/netip"
	"time"
)

// Attempt is one intended probe. All times are offsets from the start of the run on CLOCK_MONOTONIC.
type Attempt struct {
	Lane     uint16        // id of the lane, declared by an EventLane event
	Seq      uint64        // number within the lane, from 0, without gaps
	Intended time.Duration // when the schedule said that it starts; an outcome is charged to this instant
	Start    time.Duration // when it really started; Start-Intended is the lateness
	Connect  time.Duration // from Start until the connection was established; 0 if it never was
	Total    time.Duration // from Start until the outcome was known
	Class    Class
	Retrans  uint8          // TCP_INFO tcpi_total_retrans after the connect phase
	Source   netip.AddrPort // the client's end of the five-tuple
	// TupleAge is the time since this five-tuple was last used, 0 when never before. On a connection that stays open
	// (tcp-long) it is the connection's age, 0 for the attempt that opened it.
	TupleAge time.Duration

	Backend     string        // pod that answered, in its own words; empty without an answer
	Node        string        // node of that pod, in its own words
	Generation  string        // pod-template-hash of that pod
	Terminating time.Duration // how long that pod had been shutting down when it answered; 0 when it was not

	Offender netip.Addr // sender of the ICMP error, if any
	Detail   string     // errno or short text; bounded vocabulary, never with ports or addresses
}

// Lateness is how much later than intended the attempt started.
func (a Attempt) Lateness() time.Duration { return a.Start - a.Intended }

// Kind is the fixed word for what an event is about.
type Kind string

// The kinds of event. The attributes (Event.Attrs) that each kind carries are part of the history format.
const (
	// EventLane declares a lane: id name client target protocol policy close rate dialMs replyMs service,
	// local=true behind externalTrafficPolicy: Local, node where no balancer chooses one and all attempts go over that,
	// control=true for lanes that are evidence and never count as the subject's, partial=true for lanes that the scenario
	// ends before the run is over; with tcp-long also connections and stallMs. Control lanes that do not prove the detector
	// have a role: see RoleFresh, with beside, the name of a lane, and RolePod, with pod. The lane of a worker of a fleet has
	// worker, its name; workers, how many were wanted; and joined=true when it was to begin later than the others.
	EventLane Kind = "lane"
	// EventPhase marks setup, baseline, proof, scenario, settle, end; Object is the phase, it lasts until the next.
	EventPhase Kind = "phase"
	// EventStep is a step of the scenario: attr state=begin|end|failed, error when failed.
	EventStep Kind = "step"
	// EventRollout is a rollout of a workload seen to happen: attr state=begin|end, generation.
	EventRollout Kind = "rollout"
	// EventPod is a change in a pod's life: attr state=created|started|ready|unready|terminating|sigterm|exited|removed,
	// pod, node, ip, generation.
	EventPod Kind = "pod"
	// EventEndpoint is a change of an endpoint in an EndpointSlice: attr service, address, pod,
	// state=ready|serving-terminating|terminating|unready|removed.
	EventEndpoint Kind = "endpoint"
	// EventService is something that was done to the measured Service: attr service, state=changed|deleted|created, fields: those
	// of its spec that changed, with commas between them. What was deleted is away until it is created.
	EventService Kind = "service"
	// EventProxy is about the subject on a node: attr state=started|ready|exited|killed|stopped|continued|
	// synced|flushed|restored.
	EventProxy Kind = "proxy"
	// EventNode is about a node as a machine: attr state=off|on.
	EventNode Kind = "node"
	// EventForeign is something on a node that is neither the proxy's nor the lab's, such as another program's rule: attr
	// state=begin|end, id, what: a clause that names it. It explains what fails from its begin to its end.
	EventForeign Kind = "foreign"
	// EventHealth is a health check whose result changed: Node, attr result=pass|fail, status, target, count.
	EventHealth Kind = "health"
	// EventBalancer is a change of the balancer's table: attr service, address, port, nodes (comma separated, in the
	// order of the table, empty for none), all (every node, likewise), protocol, policy, seed, fromNs: when the change
	// began, reloaded=true when the balancer started anew with it. At is when it was complete. Under the policies sticky
	// and rehash PickNode computes the node of an attempt, under roundrobin EventFlows tells it.
	EventBalancer Kind = "balancer"
	// EventFlows is what a balancer that terminates connections said of the nodes that it gave some of them to: attr
	// service, address, port, protocol, flows (see FormatFlows).
	EventFlows Kind = "flows"
	// EventKernel is a change of a node's tables, as the kernel or the proxy's own log tells it: attr table=ipvs,
	// change=added|removed|weight, service (address:port), backend, weight.
	EventKernel Kind = "kernel"
	// EventTable is a virtual server of a node's kernel, told when a look found it other than the look before: Node, attr
	// table=ipvs|nftables, address, port, protocol, state=present|absent, backends (see FormatBackends; in order, empty for
	// none; of nftables, those of iptables too, what new connections of the lanes may be translated to), fromNs: it changed
	// after this, absent at a node's first, by: the program that changed it, where the kernel tells. At is when it was found.
	EventTable Kind = "table"
	// EventChoice is which backend a node's kernel gave a failed attempt, as its connection tracking had it afterwards: Node that
	// had the connection, attr lane, seq, backend (address:port); both are empty when no node had it.
	EventChoice Kind = "choice"
	// EventInjected is a known fault put in on purpose: attr fault=drop|refuse|flush, state=begin|end, id, lane (the lane
	// that must see it), control=true when it proves the detector.
	EventInjected Kind = "injected"
	// EventLog is a line of a program's log worth keeping: attr program, level.
	EventLog Kind = "log"
	// EventClock is how far the clock of a worker of a fleet was off at most, as it was compared with the run's: attr lane, its
	// id, boundNs. The times of the lane's attempts are true to within the largest of them.
	EventClock Kind = "clock"
	// EventGap is a time in which a worker of a fleet made attempts, or may have, that are not in the record: attr lane, its id,
	// fromNs, toNs, seq: every number below it is in the record. Text says what became of the worker.
	EventGap Kind = "gap"
	// EventSkipped is a lane that the run could not measure: Object is its name, Text why.
	EventSkipped Kind = "skipped"
	// EventGuard is a guard of the measurement that tripped: the run is invalid; Text says why.
	EventGuard Kind = "guard"
)

// Kinds are all kinds of event. An event of another kind is damage to the record.
func Kinds() []Kind {
	return []Kind{EventLane, EventPhase, EventStep, EventRollout, EventPod, EventEndpoint, EventService, EventProxy, EventNode, EventForeign, EventHealth,
		EventBalancer, EventFlows, EventKernel, EventTable, EventChoice, EventInjected, EventLog, EventClock, EventGap, EventSkipped, EventGuard}
}

// Event is something that happened to the system, or a step that hitless took.
type Event struct {
	At     time.Duration     `json:"atNs"`
	Kind   Kind              `json:"kind"`
	Node   string            `json:"node,omitempty"`
	Object string            `json:"object,omitempty"`
	Text   string            `json:"text"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// Recorder takes the record of a run. Implementations are safe for concurrent use, and keep the order of calls.
type Recorder interface {
	Event(Event)
	Attempt(Attempt)
}

// Run says what was run: the part of the history that is known before its first event. It is history/run.json.
type Run struct {
	SchemaVersion int               `json:"schemaVersion"`
	Scenario      string            `json:"scenario"`
	Parameters    map[string]string `json:"parameters"`
	Seed          int64             `json:"seed"`
	Kernel        Kernel            `json:"kernel"`
	Clock         string            `json:"clock"` // real or virtual
	Subject       Subject           `json:"subject"`
	ControlPlane  string            `json:"controlPlane"` // kube or replay; a live one's version
	Nodes         []string          `json:"nodes"`
	InputsSha256  string            `json:"inputsSha256"`
	Command       string            `json:"command"` // the one command that repeats this run
	Budget        Budget            `json:"budget"`
	Record        string            `json:"record,omitempty"` // RecordThinned, or empty: every attempt stands in the record
}

// RoleFresh is the role of a control lane without a schedule: each of its attempts is a new connection, tried at the moment
// at which an established connection of the lane that it is beside failed, or began to stall. Its declared rate is that
// lane's. Its outcomes tell what was lost, and are no loss of their own.
const RoleFresh = "fresh"

// RolePod is the role of a control lane to the own address of a pod of the measured Service, past its proxies. What fails
// there too is the pod's loss or the network's.
const RolePod = "pod"

// RecordThinned says that the record has buckets of attempts where nothing happened, see Thinner.
const RecordThinned = "thinned"

// Kernel says where the proxies ran.
type Kernel struct {
	Kind    string `json:"kind"` // vm, host, or cluster: a live one
	Release string `json:"release"`
}

// Subject is the proxy under test.
type Subject struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
}

// Budget is the loss that the user accepts, in connections; never a success ratio.
type Budget struct {
	Dropped int `json:"dropped"`
	Delayed int `json:"delayed"`
}
