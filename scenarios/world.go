package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// World is a run on a site, as its scenario uses it.
type World struct {
	Cluster  *resources.Resources
	Nodes    []string
	Site     *Site
	Prober   Prober
	Recorder record.Recorder
	Clock    Clock
	Params   Params
	Rate     float64
	Seed     int64      // for the head of the timeline
	Random   *rand.Rand // drawn from the seed
	// Namespace is where everything is that a scenario makes; default when empty.
	Namespace string
	// ServiceType is that of the Services; LoadBalancer when empty.
	ServiceType corev1.ServiceType

	run runState
}

// runState is the state of a run: what earlier parts and steps leave for later ones.
type runState struct {
	main, canary *workload
	lanes        map[string]func() error // how to stop the measured lanes that run
	given        []timeline.Step         // objects that exist before any traffic
	datagrams    bool                    // a lane of the scenario's own speaks UDP
	ownKinds     []string                // the protocols of the scenario's own lanes
	proofs       int                     // of the detector so far
	began        time.Duration           // when the scenario began to disturb
	tolerant     bool                    // the scenario continues when an awaited condition does not come about
	unwritten    bool                    // the run writes no timeline

	workloads   map[string]*workload
	services    map[string]*headless
	pods        map[string]*corev1.Pod // by the name in the step, as before the last step on it
	connections map[string]*heldConnections
	restores    map[string]func() error // by node: puts a proxy's tables back
	apiReturns  map[string]func()       // by node: ends the absence of the API server
	apiLifts    map[string]func()       // by node: ends the delay of its watches
	losses      []*lostEvent
	watchCounts map[string]int           // by node: watches before something was done to them
	pids        map[string]int           // by node: of the proxy that ended last
	subjects    map[string]string        // by node: the subject at the start of the run
	held        map[string]string        // by node: why its proxy does not run, by a step of the scenario
	blocked     map[string]*blockade     // by node: those whose proxy is blocked
	dark        map[string]darkness      // by node: those without power
	evicted     []corev1.Pod             // by the last eviction
	marked      map[string]time.Duration // by node: when the autoscaler's mark was set
	emptied     time.Duration            // the earliest end of the last pod of the measured workload; 0 while it has pods
	deleted     time.Duration            // when the measured Service was deleted; 0 while it exists
	unreached   map[string]bool          // the nodes over which no Service was reached before the scenario
	unrecovered bool                     // a proxy has not followed the change of a recovery check
	rollouts    int                      // rollouts of the measured workload so far
	restarts    int                      // restarts of the DaemonSet of a live cluster's proxy so far
	rolling     int                      // number of the rollout whose end is not recorded yet; 0 for none
}

// darkness is a node without power.
type darkness struct {
	since time.Duration
	pods  podShare // of the measured Service, when it lost power
}

// isDark reports whether a node has no power.
func (r *runState) isDark(node string) bool {
	_, is := r.dark[node]
	return is
}

// state is the run state with its maps, which the first call makes.
func (w *World) state() *runState {
	r := &w.run
	if r.workloads == nil {
		r.workloads, r.services, r.pods = map[string]*workload{timeline.Measured: r.main}, map[string]*headless{}, map[string]*corev1.Pod{}
		r.connections, r.restores = map[string]*heldConnections{}, map[string]func() error{}
		r.apiReturns, r.apiLifts = map[string]func(){}, map[string]func(){}
		r.watchCounts, r.pids, r.subjects = map[string]int{}, map[string]int{}, map[string]string{}
		r.held, r.dark, r.unreached = map[string]string{}, map[string]darkness{}, map[string]bool{}
		r.marked, r.blocked = map[string]time.Duration{}, map[string]*blockade{}
	}
	return r
}

func (w *World) namespace() string { return cmp.Or(w.Namespace, metav1.NamespaceDefault) }

// balancerKnown reports whether a load balancer of ours is between the clients and the nodes.
func (w *World) balancerKnown() bool { return w.Site.Offers().Has(OwnLoadBalancer) }

// members are the nodes that the load balancer sends new flows of a Service to, and false when they are unknown.
func (w *World) members(service string) (nodes []string, known bool) {
	b, err := part[LoadBalancer](w.Site, OwnLoadBalancer)
	if err != nil {
		return nil, false
	}
	return b.Members(service)
}

func (w *World) proxies() (Proxies, error) { return part[Proxies](w.Site, RestartableProxies) }

func (w *World) controlPlane() (ControlPlane, error) {
	return part[ControlPlane](w.Site, ControllableAPI)
}

// Clock is the run's time.
type Clock interface {
	// Now is the time since the start of the run.
	Now() time.Duration
	// Sleep lets time pass; it ends early with the context's error. It is for measured windows; World.Until waits for
	// conditions.
	Sleep(ctx context.Context, d time.Duration) error
}

// LaneSpec is a lane that a scenario starts.
type LaneSpec struct {
	Name    string
	Service string
	Target  string // address:port
	Rate    float64
	Local   bool // externalTrafficPolicy: Local
	Control bool // proves the detector; never counts as the subject's
	// Terminated says that the load balancer terminates connections, so that the client never retransmits a SYN to a
	// node.
	Terminated bool
	// Protocol is how attempts connect: tcp-new (when empty) or another word of Protocols.
	Protocol string
	// Connections is how many connections a tcp-long lane keeps open.
	Connections int
	// Close is how connections end: fin (when empty) or rst.
	Close string
	// Policy is the connection policy: fresh (when empty) or reuse:INTERVAL.
	Policy string
	// Node is the one that all attempts go over; empty when a balancer chooses.
	Node string
	// Role and Pod are those of a lane to a pod's own address: record.RolePod and its name; empty for others.
	Role, Pod string
	// Lasts is how long the lane runs at most; 0 for unknown.
	Lasts time.Duration
	// Partial says that the scenario ends the lane before the end of the run.
	Partial bool
	// Backends are the prefixes of the names of the pods that may answer.
	Backends []string
	Host     string
}

// Prober runs lanes.
type Prober interface {
	StartLane(ctx context.Context, l LaneSpec) (stop func() error, err error)
	// Failures is the number of failed attempts on measured lanes so far.
	Failures() int
}

// Step runs one step and records its begin and end. A failed step makes the run invalid: the event did not happen.
func (w *World) Step(ctx context.Context, name, node string, f func(ctx context.Context) error) error {
	recorder := func(state record.StepState, text string, err error) {
		body := record.Step{State: state}
		if err != nil {
			body.Error = err.Error()
		}
		w.Recorder.Event(record.Event{At: w.Clock.Now(), Node: node, Object: name, Text: text, Body: body})
	}
	recorder(record.StepBegin, name, nil)
	if err := f(ctx); err != nil {
		recorder(record.StepFailed, fmt.Sprintf("%s failed: %v", name, err), err)
		return fmt.Errorf("%s: %w", name, err)
	}
	recorder(record.StepEnd, name+" done", nil)
	return nil
}

// The phases of a run.
const (
	phaseBaseline = "baseline"
	phaseScenario = "scenario"
	phaseSettle   = "settle"
)

func (w *World) phase(name string, demands record.Phase) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: name, Text: "phase " + name, Body: demands})
}

// proxyExited returns an error for a proxy that has ended before the scenario, which ends proxies itself.
func (w *World) proxyExited() error {
	if proxies, err := w.proxies(); err == nil && w.run.began == 0 {
		return proxies.Exited()
	}
	return nil
}

// condition reports whether what a run waits for holds, and the state that it saw.
type condition = func(ctx context.Context) (holds bool, seen string, err error)

// Until waits until the condition holds, at most for the given time. It checks every 200 ms of the run's time, and later
// at intervals of a sixteenth of the time waited. The error names the condition and the last state, or the proxy that has ended.
func (w *World) Until(ctx context.Context, what string, most time.Duration, holds condition) error {
	return w.until(ctx, what, 200*time.Millisecond, most, holds)
}

// until is Until with the time between the first checks.
func (w *World) until(ctx context.Context, what string, every, most time.Duration, holds condition) error {
	begin := w.Clock.Now()
	for {
		ok, seen, err := holds(ctx)
		if ok && err == nil {
			return nil
		}
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) { // which waiting does not heal
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if err := w.proxyExited(); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		waited := w.Clock.Now() - begin
		if waited >= most {
			if err != nil {
				return fmt.Errorf("waited %s for %s; last seen: %w", most, what, err)
			}
			return fmt.Errorf("waited %s for %s; last seen: %s", most, what, seen)
		}
		if err := w.Clock.Sleep(ctx, max(every, waited/16)); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}
