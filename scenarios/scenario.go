// Package scenarios says what is done to a cluster and its proxy, as named steps: roll out, restart the proxy, put in a
// known fault. A scenario talks to the interfaces of this package and to the Kubernetes API, never to the lab, so that
// the same steps drive the lab and a live cluster. It judges nothing: what it did goes into the history.
package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Scenario is one way to disturb a cluster.
type Scenario struct {
	Name    string
	Summary string // one line, for `hitless scenarios`
	// Parameters are the scenario's own `--set` keys with their defaults; those of the workload and the balancer come
	// with every scenario.
	Parameters []Parameter
	// Gated gives the measured pods a readiness gate, which World.setGate opens and closes.
	Gated bool
	// Tools says that it needs nft on the nodes, whatever the proxy calls.
	Tools bool
	// ReplayOnly says that only the replay control plane can be asked for what it does.
	ReplayOnly bool
	// ByAPI says that the API server alone is asked for what it does, so that it can be done to any cluster.
	ByAPI bool
	// Needs are the verbs that it needs on a live cluster besides those of every run.
	Needs []Need
	// Live is the scenario as it is done to a live cluster, by the same steps, where its parameters differ; nil where ByAPI says
	// all.
	Live *Scenario
	// Touches says what it changes on a live cluster that is not the run's own, line by line, without changing anything; nil for
	// nothing. The error says why it cannot be done there.
	Touches func(ctx context.Context, w *World) ([]string, error)
	// Lanes are measured from the baseline on, beside those that the parameter lanes names (without it, the one of new
	// connections); nil for none.
	Lanes func(w *World) []LaneSpec
	// Datagrams says that one of these speaks UDP.
	Datagrams bool
	// BriefCanary says that the canary Service is taken away when it has proved the detector: over days its health checks would
	// cost more than all the rest.
	BriefCanary bool
	// NodesLeave says that it takes nodes away, so that neither a client nor a target can be on one.
	NodesLeave bool
	// Unwritten says that a timeline has no verbs for all that the scenario does yet: its runs write none.
	Unwritten bool
	// Prepare does what is to be done before any traffic flows; nil for nothing.
	Prepare func(ctx context.Context, w *World) error
	// Run disturbs the cluster; lanes already run. It must record each step through World.Step.
	Run func(ctx context.Context, w *World) error
}

// All lists the scenarios in the order of their names.
func All() []Scenario {
	return []Scenario{api(), churn(), drain(), fault(), flap(), interference(), migrate(), policy(), quiet(), recreate(), restart(), rollout(), scale(), soak(), upgrade()}
}

// gates says whether the measured pods have a readiness gate.
func (s Scenario) gates(p Params) bool {
	return s.Gated || p.on("gated") || p["change"] == changeReady || p.number(flapsRate) > 0
}

// NeedsReplay says whether only the replay control plane can be asked for what it does with these parameters.
func (s Scenario) NeedsReplay(p Params) bool { return s.ReplayOnly || p.number(apiBlips) > 0 }

// Find returns the scenario of that name; the error lists the known ones.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("unknown scenario %q; the scenarios are %s", name, strings.Join(names, ", "))
}

// Common are the parameters that every scenario has: of the workload, the balancer and the measured windows.
func Common() []Parameter {
	return slices.Concat(workloadParameters, balancerParameters, windowParameters)
}

// AllParameters are the scenario's own parameters and those that every scenario has.
func (s Scenario) AllParameters() []Parameter {
	own := map[string]bool{}
	for _, p := range s.Parameters {
		own[p.Key] = true
	}
	all := slices.Clone(s.Parameters)
	for _, p := range append(s.laneParameters(), Common()...) {
		if !own[p.Key] {
			all = append(all, p)
		}
	}
	return all
}

// World is what a scenario sees of the lab or the live cluster.
type World struct {
	Cluster  *resources.Resources
	Nodes    []string
	Proxies  Proxies
	Machines Machines
	Faults   Faults
	Prober   Prober
	Recorder reports.Recorder
	Clock    Clock
	Params   Params
	Rate     float64
	Random   *rand.Rand // drawn from the run's seed
	// ControlPlane is nil where the scenario has a real one.
	ControlPlane ControlPlane
	// Failures is how many attempts on measured lanes have failed so far.
	Failures func() int
	// Namespace is where everything stands that a scenario makes; default when empty.
	Namespace string
	// ServiceType is that of the Services; LoadBalancer when empty.
	ServiceType corev1.ServiceType
	// Target waits until a Service can be reached from where the lanes start, and returns address:port; when it is nil, that is
	// the address in the Service's status.
	Target func(ctx context.Context, s *corev1.Service) (string, error)
	// OnlyHere says that nothing between client and node is ours: Faults can do no more than drop what arrives here.
	OnlyHere bool
	// Mark returns the annotations that go with a change of what belongs to the cluster and not to the run, so that it can be put back
	// by someone who knows nothing of the run; nil where everything is the run's.
	Mark func(c Change) map[string]string
	// PutBack makes what was changed with such annotations what it was.
	PutBack func(ctx context.Context) error
	// Balanced returns the nodes that the balancer sends new flows of a Service to, and false when nothing is known of it.
	Balanced func(service string) ([]string, bool)

	// Reach asks once at address:port, over tcp or udp, from where the lanes start, and returns why it got no answer.
	Reach func(ctx context.Context, network, target string) error

	// Hold opens one connection to address:port from where the lanes start, and keeps it open.
	Hold func(ctx context.Context, target string) (io.Closer, error)

	// Direct keeps a lane like the given one to the own address of each ready pod of its Service, at the port, until stop is
	// called.
	Direct func(ctx context.Context, like LaneSpec, port int) (stop func() error, err error)

	// Journal takes the run's timeline while it happens: its head, and a line for each step, with their newlines; nil for none.
	Journal func(text string)
	// Seed is what Random is drawn from, for the head of the timeline.
	Seed int64

	main, canary *workload
	lanes        map[string]func() error // how to stop the measured lanes that run
	done         *deeds
	given        []timeline.Step // objects that were there before any traffic
	datagrams    bool            // a lane of the scenario's own speaks UDP
	began        time.Duration   // when the scenario began to disturb
	tolerant     bool            // the scenario goes on when what it waits for does not come about
}

func (w *World) namespace() string { return cmp.Or(w.Namespace, metav1.NamespaceDefault) }

// Clock is the run's time.
type Clock interface {
	// Now is the time since the start of the run.
	Now() time.Duration
	// Sleep lets time pass; it ends early with the context's error. It is for measured windows, not for waiting until
	// something happens: use World.Until for that.
	Sleep(ctx context.Context, d time.Duration) error
}

// Proxies are the proxies under test, one a node.
type Proxies interface {
	Start(ctx context.Context, node string) error
	Stop(ctx context.Context, node string) error // SIGTERM, then waits for the end
	Kill(ctx context.Context, node string) error // SIGKILL
	Freeze(node string) error                    // SIGSTOP
	Thaw(node string) error                      // SIGCONT
	// Frozen reports whether the node's proxy stands still, as after Freeze.
	Frozen(node string) (bool, error)
	// Flush empties the node's proxy tables behind the proxy's back; restore puts back what was in them.
	Flush(ctx context.Context, node string) (restore func() error, err error)
	// Fair says whether a proxy has failed to do what it was asked, as far as its own log tells; nil when none has.
	Fair() error
	// Change says that the next Start of the node's proxy, which has ended, starts another subject.
	Change(node, subject string) error
	// Cleanup has the node's proxy, which has ended, take everything of it out of the kernel.
	Cleanup(ctx context.Context, node string) error
	// Beside starts another subject on a node whose proxy runs. The function says how it has ended, nil while it runs.
	Beside(node, subject string) (alive func() error, err error)
	// Subject names what runs on the node.
	Subject(node string) string
	// Quiet is for how long the log of the node's proxy has had no new line.
	Quiet(node string) (time.Duration, error)
	// Pid is the process id of the node's proxy.
	Pid(node string) (int, error)
}

// Machines are the nodes as machines.
type Machines interface {
	// PowerOff takes the power from a node without warning, and returns when nothing runs there any more.
	PowerOff(ctx context.Context, node string) error
	// PowerOn boots a node without power, and returns when its proxy is accepted.
	PowerOn(ctx context.Context, node string) error
	// Command runs a program on a node to its end, and returns what it says.
	Command(ctx context.Context, node string, words ...string) (output string, err error)
}

// FaultSpec is a known fault between client and node.
type FaultSpec struct {
	ID       string
	Kind     string // drop, refuse or reset
	Target   string // address:port
	Protocol string // tcp when empty, or udp
	Node     string // only flows of that node; empty for all
	For      time.Duration
	Attrs    map[string]string
}

// Faults puts known faults in.
type Faults interface {
	Inject(ctx context.Context, f FaultSpec) error
}

// LaneSpec is what a scenario asks the probes for.
type LaneSpec struct {
	Name    string
	Service string
	Target  string // address:port
	Rate    float64
	Local   bool // externalTrafficPolicy: Local
	Control bool // proves the detector; never counts as the subject's
	// Terminated says that the balancer terminates connections: the client's socket never sends a SYN again there.
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
	// Role and Pod are those of a lane to a pod's own address: reports.RolePod and its name; empty for others.
	Role, Pod string
	// Partial says that the scenario ends the lane itself, before the run is over.
	Partial bool
	// Backends are the prefixes of the names of the pods that may answer.
	Backends []string
	Host     string
}

// Prober runs lanes.
type Prober interface {
	StartLane(ctx context.Context, l LaneSpec) (stop func() error, err error)
}

// Step runs one step and records its begin and end. A failed step makes the run invalid: the event did not happen.
func (w *World) Step(ctx context.Context, name, node string, f func(ctx context.Context) error) error {
	record := func(state, text string, err error) {
		e := reports.Event{At: w.Clock.Now(), Kind: reports.EventStep, Node: node, Object: name, Text: text,
			Attrs: map[string]string{"state": state}}
		if err != nil {
			e.Attrs["error"] = err.Error()
		}
		w.Recorder.Event(e)
	}
	record("begin", name, nil)
	if err := f(ctx); err != nil {
		record("failed", fmt.Sprintf("%s failed: %v", name, err), err)
		return fmt.Errorf("%s: %w", name, err)
	}
	record("end", name+" done", nil)
	return nil
}

func (w *World) phase(name string) {
	w.Recorder.Event(reports.Event{At: w.Clock.Now(), Kind: reports.EventPhase, Object: name, Text: "phase " + name})
}

// Until waits until the condition holds, at most for the given time. It asks every 200 ms of the run's time, and after
// some seconds each time that a sixteenth of the wait so far has passed: what takes a minute is not asked for 300 times.
// The error says what was waited for and what was seen last.
func (w *World) Until(ctx context.Context, what string, most time.Duration, holds func(ctx context.Context) (bool, string, error)) error {
	begin := w.Clock.Now()
	for {
		ok, seen, err := holds(ctx)
		if ok && err == nil {
			return nil
		}
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) { // which waiting does not heal
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		waited := w.Clock.Now() - begin
		if waited >= most {
			if err != nil {
				return fmt.Errorf("waited %s for %s; last seen: %w", most, what, err)
			}
			return fmt.Errorf("waited %s for %s; last seen: %s", most, what, seen)
		}
		if err := w.Clock.Sleep(ctx, max(200*time.Millisecond, waited/16)); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}
