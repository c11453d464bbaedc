package record

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// The bodies of events, in the order of Kinds. The tag names the attribute in events.ndjson; see codec.go for its options.

// Lane declares a lane. A control lane never counts as the subject's loss.
type Lane struct {
	ID          uint16        `attr:"id,required"`
	Name        string        `attr:"name"`
	Client      string        `attr:"client"`
	Target      string        `attr:"target"` // address:port
	Protocol    string        `attr:"protocol"`
	Policy      string        `attr:"policy"`
	Close       string        `attr:"close"`
	Rate        float64       `attr:"rate,required"` // attempts per second
	Dial        time.Duration `attr:"dialMs"`
	Reply       time.Duration `attr:"replyMs"`
	Service     string        `attr:"service,omitempty"`
	Local       bool          `attr:"local,with=service"` // behind externalTrafficPolicy: Local
	Node        string        `attr:"node,omitempty"`     // all attempts go over it; empty when a load balancer chooses
	Control     bool          `attr:"control,omitempty"`
	Partial     bool          `attr:"partial,omitempty"`     // the scenario ends the lane before the run is over
	Connections int           `attr:"connections,omitempty"` // of a tcp-long lane
	Stall       time.Duration `attr:"stallMs,omitempty"`     // of a tcp-long lane
	Role        string        `attr:"role,omitempty"`        // RoleFresh, RolePod or RoleUnserved, of a control lane that does not prove the detector
	Beside      string        `attr:"beside,omitempty"`      // with RoleFresh: name of the lane whose connections it accompanies
	Pod         string        `attr:"pod,omitempty"`         // with RolePod
	Worker      string        `attr:"worker,omitempty"`      // of a fleet
	Workers     int           `attr:"workers,omitempty"`     // how many the fleet should have
	Joined      bool          `attr:"joined,omitempty"`      // the worker was to begin later than the others
}

// Phase begins a phase: Object is setup, baseline, scenario, settle or end. It lasts until the next one. Its fields are
// the least that a pass rests on; zero for no demand.
type Phase struct {
	Attempts int           `attr:"attempts,omitempty"` // on each path
	Loss     time.Duration `attr:"lossMs,omitempty"`   // of the scenario: an outage of this length must meet two attempts on each path
	Disturbs bool          `attr:"disturbs,omitempty"` // of the scenario: the time after its steps belongs to it
	Lasts    time.Duration `attr:"lastsNs,omitempty"`  // of the scenario: a shorter one was cut off, and a pass would say too much
}

// Step is a step of the scenario.
type Step struct {
	State StepState `attr:"state"`
	Error string    `attr:"error,omitempty"`
}

// StepState is the state of a step.
type StepState string

// The states of Step.
const (
	StepBegin  StepState = "begin"
	StepEnd    StepState = "end"
	StepFailed StepState = "failed"
	StepMissed StepState = "missed" // it had no effect
)

// Rollout is an observed rollout of a workload.
type Rollout struct {
	State      RolloutState `attr:"state"`
	Generation string       `attr:"generation"`
}

// RolloutState is the state of a rollout.
type RolloutState string

// The states of Rollout.
const (
	RolloutBegin RolloutState = "begin"
	RolloutEnd   RolloutState = "end"
)

// Pod is a change in a pod's life.
type Pod struct {
	State      PodState `attr:"state"`
	Pod        string   `attr:"pod"`
	Node       string   `attr:"node"`
	IP         string   `attr:"ip,omitempty"`
	Generation string   `attr:"generation"`
	SecondIP   string   `attr:"secondIP,omitempty"` // of the second family of a dual-stack cluster
}

// PodState is the state that a pod reached.
type PodState string

// The states of Pod.
const (
	PodCreated     PodState = "created"
	PodStarted     PodState = "started"
	PodReady       PodState = "ready"
	PodUnready     PodState = "unready"
	PodTerminating PodState = "terminating"
	PodSigterm     PodState = "sigterm"
	PodExited      PodState = "exited"
	PodRemoved     PodState = "removed"
)

// Endpoint is a change of an endpoint in an EndpointSlice.
type Endpoint struct {
	Service string        `attr:"service"`
	Address string        `attr:"address"`
	Pod     string        `attr:"pod"`
	State   EndpointState `attr:"state"`
}

// EndpointState is the state of an endpoint by its conditions.
type EndpointState string

// The states of Endpoint.
const (
	EndpointReady              EndpointState = "ready"
	EndpointServingTerminating EndpointState = "serving-terminating"
	EndpointTerminating        EndpointState = "terminating"
	EndpointUnready            EndpointState = "unready"
	EndpointRemoved            EndpointState = "removed"
)

// Service is a change of a measured Service. A deleted Service is absent until it is created.
type Service struct {
	Service string         `attr:"service"`
	State   ServiceState   `attr:"state"`
	Fields  string         `attr:"fields"`           // changed fields of the spec, comma separated
	From    *time.Duration `attr:"fromNs,omitempty"` // it happened after this, where the API was away; nil: at once
}

// ServiceState is what became of a Service.
type ServiceState string

// The states of Service.
const (
	ServiceChanged ServiceState = "changed"
	ServiceDeleted ServiceState = "deleted"
	ServiceCreated ServiceState = "created"
)

// Proxy is a change of the subject on a node; Object is the subject.
type Proxy struct {
	State ProxyState `attr:"state"`
}

// ProxyState is the state that a proxy reached, or what was done to it.
type ProxyState string

// The states of Proxy.
const (
	ProxyStarted   ProxyState = "started"
	ProxyReady     ProxyState = "ready"
	ProxyExited    ProxyState = "exited"
	ProxyKilled    ProxyState = "killed"
	ProxyStopped   ProxyState = "stopped"
	ProxyContinued ProxyState = "continued"
	ProxySynced    ProxyState = "synced"
	ProxyFlushed   ProxyState = "flushed"
	ProxyRestored  ProxyState = "restored"
	ProxyBlocked   ProxyState = "blocked"
	ProxyUnblocked ProxyState = "unblocked"
	ProxySecond    ProxyState = "second"  // another one runs beside it
	ProxyCleanup   ProxyState = "cleanup" // its clean-up began
	ProxyUncleaned ProxyState = "cleanup-failed"
	ProxyCleaned   ProxyState = "clean"
)

// Node is a change of a node: of its power, which only the lab knows, or in the API.
type Node struct {
	State NodeState `attr:"state"`
}

// NodeState is the state that a node reached.
type NodeState string

// The states of Node: the first two are those of its power, the others those in the API.
const (
	NodeOff        NodeState = "off"
	NodeOn         NodeState = "on"
	NodeUnready    NodeState = "unready"
	NodeReady      NodeState = "ready"
	NodeCordoned   NodeState = "cordoned"
	NodeUncordoned NodeState = "uncordoned"
	NodeRemoved    NodeState = "removed"
)

// Interference is something on a node that is not the proxy's doing, such as another program's rule, or programs of the proxy that hitless
// makes fail. It explains failures from its begin to its end. What is removed was taken away by the proxy, which must not do that.
type Interference struct {
	State InterferenceState `attr:"state"`
	ID    string            `attr:"id"`
	What  string            `attr:"what"` // a clause that names it
}

// InterferenceState is the state of an interference.
type InterferenceState string

// The states of Interference.
const (
	InterferenceBegin   InterferenceState = "begin"
	InterferenceEnd     InterferenceState = "end"
	InterferenceRemoved InterferenceState = "removed"
)

// HealthCheck is a health check of the load balancer whose result changed; Object is the Service.
type HealthCheck struct {
	Result HealthResult `attr:"result"`
	Status string       `attr:"status"`
	Target string       `attr:"target"`
	Count  int          `attr:"count"` // results in a row
}

// HealthResult is the result of a health check.
type HealthResult string

// The results of HealthCheck.
const (
	HealthPass HealthResult = "pass"
	HealthFail HealthResult = "fail"
)

// Membership is a change of the nodes that the load balancer sends new connections of one Service port to. At is when it
// was complete.
type Membership struct {
	Service  string         `attr:"service"`
	Address  netip.Addr     `attr:"address,required"`
	Port     uint16         `attr:"port,required"`
	Protocol string         `attr:"protocol"`
	Nodes    []string       `attr:"nodes"` // in the order that the choice counts in
	All      []string       `attr:"all"`   // every node, likewise
	Policy   BalancerPolicy `attr:"policy"`
	Seed     *uint32        `attr:"seed"`               // of sticky and rehash
	ByClient bool           `attr:"byClient,omitempty"` // the client's address alone decides, and not its ports
	From     *time.Duration `attr:"fromNs"`             // when the change began; nil: at once
	Reloaded bool           `attr:"reloaded,omitempty"` // the load balancer restarted with it
}

// BalancerPolicy is how the load balancer chooses a node for a new connection.
type BalancerPolicy string

// The policies of Membership.
const (
	BalancerSticky     BalancerPolicy = "sticky"     // see PickNode
	BalancerRehash     BalancerPolicy = "rehash"     // see PickNode
	BalancerRoundRobin BalancerPolicy = "roundrobin" // see Flows
)

// Flows are the nodes that a terminating load balancer gave some connections to.
type Flows struct {
	Service  string     `attr:"service"`
	Address  netip.Addr `attr:"address,required"`
	Port     uint16     `attr:"port,required"`
	Protocol string     `attr:"protocol"`
	Flows    FlowList   `attr:"flows"`
}

// KernelChange is one change of a node's kernel table as the kernel or the proxy's log reports it.
type KernelChange struct {
	Table   Table         `attr:"table"`
	Change  BackendChange `attr:"change"`
	Service string        `attr:"service"` // address:port
	Backend string        `attr:"backend"` // address:port
	Weight  *int          `attr:"weight,omitempty"`
}

// Table is a kind of kernel table.
type Table string

// The tables of KernelChange and KernelTable. BPF is that of eBPF programs.
const (
	TableIPVS     Table = "ipvs"
	TableNFTables Table = "nftables" // iptables included
	TableBPF      Table = "bpf"
)

// BackendChange is how a backend changed in a kernel table.
type BackendChange string

// The changes of KernelChange.
const (
	BackendAdded   BackendChange = "added"
	BackendRemoved BackendChange = "removed"
	BackendWeight  BackendChange = "weight"
)

// KernelTable is the state of one Service address in a node's kernel table, when a look found it changed, or the table is not read any more. At
// is when it was found.
type KernelTable struct {
	Table    Table          `attr:"table"`
	Address  netip.Addr     `attr:"address,required"`
	Port     uint16         `attr:"port,required"`
	Protocol string         `attr:"protocol"`
	State    TableState     `attr:"state"`
	Backends BackendList    `attr:"backends"`
	From     *time.Duration `attr:"fromNs,omitempty"` // it changed after this; nil at the first look at the address on the node
	By       string         `attr:"by,omitempty"`     // program that changed it, where the kernel reports it
}

// TableState is the state of a Service address in a kernel table.
type TableState string

// The states of KernelTable.
const (
	TablePresent TableState = "present"
	TableAbsent  TableState = "absent"
	TableUnread  TableState = "unread" // not read any more, because of an error
)

// Choice is the backend that a node's kernel gave a failed attempt, as its connection tracking showed afterwards. Without a
// node the backend is invalid.
type Choice struct {
	Lane    uint16         `attr:"lane,required"`
	Seq     uint64         `attr:"seq,required"`
	Backend netip.AddrPort `attr:"backend,omitempty"`
}

// Fault is a known fault that hitless injected.
type Fault struct {
	Fault   string         `attr:"fault"` // drop, refuse, reset, wrong or flush
	State   FaultState     `attr:"state"`
	ID      string         `attr:"id"`
	Lane    string         `attr:"lane,omitempty"`    // the lane that must detect it
	Control bool           `attr:"control,omitempty"` // it proves the detector
	Target  string         `attr:"target,omitempty"`  // address:port
	From    *time.Duration `attr:"fromNs,omitempty"`  // at its begin: the earliest instant at which it was in force
	Until   *time.Duration `attr:"untilNs,omitempty"` // at its end: the latest
}

// FaultState is the state of a fault.
type FaultState string

// The states of Fault.
const (
	FaultBegin FaultState = "begin"
	FaultEnd   FaultState = "end"
)

// Proof begins and ends a proof of the detector: faults with Control between the two. Text gives the reason for one that could not be
// made. Older records have none, and one proof before the scenario.
type Proof struct {
	State  ProofState `attr:"state"`
	Number int        `attr:"number,required"` // 1 before the scenario
	Kinds  []string   `attr:"kinds"`           // protocols of the measured lanes, each of which has a control lane
}

// ProofState is the state of a proof.
type ProofState string

// The states of Proof.
const (
	ProofBegin  ProofState = "begin"
	ProofEnd    ProofState = "end"
	ProofUnmade ProofState = "unmade" // it could not be made
)

// Log is a line of a program's log, or a remark of hitless.
type Log struct {
	Program string         `attr:"program,omitempty"`
	Level   string         `attr:"level,omitempty"`
	Quiet   *time.Duration `attr:"quietNs,omitempty"` // how long the log has had no line
}

// ClockBound is the largest error of a fleet worker's clock against the run's. The times of the lane's attempts are true to
// within the largest of them.
type ClockBound struct {
	Lane  uint16        `attr:"lane,required"`
	Bound time.Duration `attr:"boundNs,required"`
}

// MissingRecord is a time in which a lane made attempts, or may have, that are not in the record, or should have made them. Text gives
// the reason.
type MissingRecord struct {
	Lane uint16        `attr:"lane,required"`
	From time.Duration `attr:"fromNs,required"`
	To   time.Duration `attr:"toNs,required"`
	Seq  uint64        `attr:"seq,required"` // every lower number is in the record
}

// Skipped is a lane that the run could not measure: Object is its name, Text the reason.
type Skipped struct{}

// Guard is a guard of the measurement that tripped; Text gives the reason. Without a window no attempt of the run can be trusted. With one,
// those that were under way in it prove nothing.
type Guard struct {
	From  time.Duration `attr:"fromNs,omitempty"`
	Until time.Duration `attr:"untilNs,omitempty"` // an attempt that starts then can be trusted; 0 without a window
}

// Recovery is a result of the check after the disturbance: one more change, which each running proxy must follow. Node is
// the proxy's. For off, which concerns the whole check, Node is empty.
type Recovery struct {
	State  RecoveryState `attr:"state"`
	Change RecoveryState `attr:"change,omitempty"` // of failed: the change that the proxy did not follow, added or removed
	Took   time.Duration `attr:"tookNs,omitempty"` // from the change until traffic over the node showed it; of failed and misreported: the time waited
}

// RecoveryState is a result of the check.
type RecoveryState string

// The states of Recovery. The first two are changes that the proxy followed.
const (
	RecoveryAdded       RecoveryState = "added"
	RecoveryRemoved     RecoveryState = "removed"
	RecoveryFailed      RecoveryState = "failed"
	RecoveryExited      RecoveryState = "exited"
	RecoveryMisreported RecoveryState = "misreported" // it gave health checks the wrong answer
	RecoveryUnchecked   RecoveryState = "unchecked"
	RecoveryOff         RecoveryState = "off"
)

// Excuse is a loss that a step of the scenario makes unavoidable for every subject; Text says why. Node is that of the path, and
// is empty for PathAll and PathNone. The window depends on parameters and on the scenario's own steps, never on the subject.
type Excuse struct {
	Path    string        `attr:"path"`            // PathAll, PathNode, PathPods, PathNone or PathExits
	Service string        `attr:"service"`         // the attempts of the measured lanes to it
	Lane    uint16        `attr:"lane,omitempty"`  // of this lane only; 0 for all
	Open    bool          `attr:"open,omitempty"`  // only requests on connections that stay open
	Share   float64       `attr:"share,omitempty"` // the part of the attempts, 0 to 1: of PathPods that of the ready pods there; of PathNode that over the node, 0 for all
	From    time.Duration `attr:"fromNs,required"`
	Until   time.Duration `attr:"untilNs,required"` // an attempt that starts then is not excused
	Classes []string      `attr:"classes"`          // words of classes
	// Of PathExits: each pod that begins to terminate in the window has a window of its own, from After until Most later.
	After time.Duration `attr:"afterNs,omitempty"`
	Most  time.Duration `attr:"mostNs,omitempty"`
	// Follow ends such a window this long after another pod of the Service became ready on the node; 0 for no such end.
	Follow time.Duration `attr:"followNs,omitempty"`
}

// The paths of an Excuse.
const (
	PathAll  = "all"  // all paths
	PathNode = "node" // over the node
	PathPods = "pods" // over any node, to a pod on the node
	PathNone = "none" // no node: the load balancer has none for the Service
	// PathExits is over the nodes of pods that begin to terminate while no other pod of the Service is ready there; only the event's
	// node, if it has one.
	PathExits = "exits"
)

// Valid returns an error for an excuse that no scenario can mean.
func (e Excuse) Valid() error {
	if !slices.Contains([]string{PathAll, PathNode, PathPods, PathNone, PathExits}, e.Path) {
		return fmt.Errorf("an excuse for the unknown path %q", e.Path)
	}
	if e.From < 0 || e.Until < e.From || e.After < 0 || e.Most < 0 || !(e.Share >= 0 && e.Share <= 1) {
		return fmt.Errorf("an excuse from %v until %v for the share %g", e.From, e.Until, e.Share)
	}
	for _, word := range e.Classes {
		var c Class
		if err := c.UnmarshalText([]byte(word)); err != nil {
			return err
		}
		if !c.Excusable() {
			return fmt.Errorf("an excuse for the class %s, which no disturbance makes unavoidable", c)
		}
	}
	return nil
}

// LaneEnd is the end of a lane before that of the run: its target is no longer that of the Service. Text gives the reason.
type LaneEnd struct {
	Lane   uint16       `attr:"lane,required"`
	Reason ServiceState `attr:"reason"` // deleted or changed: what became of its Service
}

// API is a change in whether the API server answers. While it is away, other changes are recorded late, or not at all.
type API struct {
	State APIState `attr:"state"`
}

// APIState is whether the API server answers.
type APIState string

// The states of API.
const (
	APIAway APIState = "away"
	APIBack APIState = "back"
)

// Check is a check of a Service from a client: which pods answered, and which client address they saw. Object is its name.
type Check struct {
	Client string `attr:"client"`
	Target string `attr:"target"`           // protocol and address:port
	Want   string `attr:"want"`             // names of exactly the pods that answer, or refused, dropped, blocked, one, or the status of a health check
	Got    string `attr:"got"`              // likewise, or Unsupported
	Source string `attr:"source,omitempty"` // wanted client address: itself or node; empty for any
	Seen   string `attr:"seen,omitempty"`
	// SeenElsewhere is what pods of other nodes saw; empty if none of them answered.
	SeenElsewhere string `attr:"seenElsewhere,omitempty"`
}

// ARPTarget begins the target of a check that asks which nodes answer an ARP request. Its result has the names of the nodes.
const ARPTarget = "arp "

// Unsupported is the result of a check that this kernel cannot make.
const Unsupported = "unsupported"

// Cost is the cost of one change for a proxy: an endpoint of a Service was replaced by another, while Others other Services existed.
type Cost struct {
	Others int           `attr:"others,required"`
	Took   time.Duration `attr:"tookNs,required"` // from the write until traffic reached the new endpoint
	CPU    time.Duration `attr:"cpuNs,required"`  // of the proxy and its children, until they were idle
}

// The kinds of the bodies.
const (
	KindLane          Kind = "lane"
	KindPhase         Kind = "phase"
	KindStep          Kind = "step"
	KindRollout       Kind = "rollout"
	KindPod           Kind = "pod"
	KindEndpoint      Kind = "endpoint"
	KindService       Kind = "service"
	KindProxy         Kind = "proxy"
	KindNode          Kind = "node"
	KindInterference  Kind = "foreign"
	KindHealthCheck   Kind = "health"
	KindMembership    Kind = "balancer"
	KindFlows         Kind = "flows"
	KindKernelChange  Kind = "kernel"
	KindKernelTable   Kind = "table"
	KindChoice        Kind = "choice"
	KindFault         Kind = "injected"
	KindLog           Kind = "log"
	KindClockBound    Kind = "clock"
	KindMissingRecord Kind = "gap"
	KindSkipped       Kind = "skipped"
	KindGuard         Kind = "guard"
	KindRecovery      Kind = "recovery"
	KindExcuse        Kind = "excuse"
	KindLaneEnd       Kind = "ended"
	KindAPI           Kind = "api"
	KindCheck         Kind = "check"
	KindCost          Kind = "cost"
	KindProof         Kind = "proof"
)

// bodies has the zero body of each kind. An event of another kind is damage to the record.
var bodies = []Body{Lane{}, Phase{}, Step{}, Rollout{}, Pod{}, Endpoint{}, Service{}, Proxy{}, Node{}, Interference{}, HealthCheck{},
	Membership{}, Flows{}, KernelChange{}, KernelTable{}, Choice{}, Fault{}, Log{}, ClockBound{}, MissingRecord{}, Skipped{}, Guard{}, Recovery{},
	Excuse{}, LaneEnd{}, API{}, Check{}, Cost{}, Proof{}}

// Kinds returns all kinds, in a fixed order.
func Kinds() []Kind {
	all := make([]Kind, len(bodies))
	for i, b := range bodies {
		all[i] = b.Kind()
	}
	return all
}

// Kind implements Body.
func (Lane) Kind() Kind          { return KindLane }
func (Phase) Kind() Kind         { return KindPhase }
func (Step) Kind() Kind          { return KindStep }
func (Rollout) Kind() Kind       { return KindRollout }
func (Pod) Kind() Kind           { return KindPod }
func (Endpoint) Kind() Kind      { return KindEndpoint }
func (Service) Kind() Kind       { return KindService }
func (Proxy) Kind() Kind         { return KindProxy }
func (Node) Kind() Kind          { return KindNode }
func (Interference) Kind() Kind  { return KindInterference }
func (HealthCheck) Kind() Kind   { return KindHealthCheck }
func (Membership) Kind() Kind    { return KindMembership }
func (Flows) Kind() Kind         { return KindFlows }
func (KernelChange) Kind() Kind  { return KindKernelChange }
func (KernelTable) Kind() Kind   { return KindKernelTable }
func (Choice) Kind() Kind        { return KindChoice }
func (Fault) Kind() Kind         { return KindFault }
func (Log) Kind() Kind           { return KindLog }
func (ClockBound) Kind() Kind    { return KindClockBound }
func (MissingRecord) Kind() Kind { return KindMissingRecord }
func (Skipped) Kind() Kind       { return KindSkipped }
func (Guard) Kind() Kind         { return KindGuard }
func (Recovery) Kind() Kind      { return KindRecovery }
func (Excuse) Kind() Kind        { return KindExcuse }
func (LaneEnd) Kind() Kind       { return KindLaneEnd }
func (API) Kind() Kind           { return KindAPI }
func (Check) Kind() Kind         { return KindCheck }
func (Cost) Kind() Kind          { return KindCost }
func (Proof) Kind() Kind         { return KindProof }
