package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/record"
)

// The control lanes: new connections to the canary, datagrams to it where the run measures UDP, and a lane that expects
// the canary's pods at the measured Service, so that each answer is misrouted.
const (
	canaryName     = "canary" // of its Deployment and Service
	canaryLane     = "canary"
	canaryUDP      = "canary-udp"
	canaryWrong    = "canary-misrouted"
	faultMisroute  = "misroute" // the others are those of FaultSpec.Kind
	pauseAfterDrop = 2500 * time.Millisecond
	rest           = time.Second
)

// proof is a known fault that a run must find on a control lane.
type proof struct {
	kind string
	For  time.Duration
	lane string // canaryLane when empty
	node string // the only node that it is on; empty for all

	family record.Family // of the lane
}

// proofs are the known faults of a run, for each family in turn. None is shorter than two intervals of the canary, or it could fall between
// attempts; one on a single node lasts twelve intervals, because a node gets an attempt at least every five.
func (w *World) proofs() []proof {
	var all []proof
	for _, f := range w.families() {
		for _, p := range w.proofsOnce() {
			p.family = f
			all = append(all, p)
		}
	}
	return all
}

// proofsOnce are the known faults of one family.
func (w *World) proofsOnce() []proof {
	gap := time.Duration(float64(time.Second) / w.canaryRate())
	lasting := func(d time.Duration, gaps int) time.Duration { return max(d, time.Duration(gaps)*gap) }
	var all []proof
	if 2*gap <= 5*time.Millisecond {
		all = append(all, proof{kind: "drop", For: 5 * time.Millisecond})
	}
	all = append(all, proof{kind: "drop", For: lasting(20*time.Millisecond, 2)}, proof{kind: "drop", For: lasting(200*time.Millisecond, 2)})
	if w.balancerKnown() {
		all = append(all, proof{kind: "refuse", For: lasting(100*time.Millisecond, 2)}, proof{kind: "reset", For: lasting(100*time.Millisecond, 2)})
	}
	if !w.terminated() && w.balancerKnown() { // HAProxy chooses nodes itself, so that no fault can be on a single one
		all = append(all, proof{kind: "drop", For: lasting(200*time.Millisecond, 12), node: w.Nodes[0]})
	}
	if w.speaksUDP() {
		all = append(all, proof{kind: "drop", For: lasting(200*time.Millisecond, 2), lane: canaryUDP})
	}
	return append(all, proof{kind: faultMisroute, For: lasting(100*time.Millisecond, 4), lane: canaryWrong})
}

// rest is the pause after the proof: a dropped SYN is sent again after one second.
func (p proof) rest() time.Duration {
	if p.kind == "drop" {
		return pauseAfterDrop
	}
	return rest
}

func (p proof) String() string {
	text := fmt.Sprintf("%s for %s on %s", p.kind, p.For, p.onLane())
	if p.node != "" {
		text += " over " + p.node
	}
	return text
}

func (p proof) onLane() string { return p.family.Named(cmp.Or(p.lane, canaryLane)) }

// proofRate is the least rate of the canary: a slower lane could not find short faults. It is no higher, so that the
// canary is not harder to run than the measured lane.
const proofRate = 20

func (w *World) canaryRate() float64 { return max(w.Rate, proofRate) }

// controlLane is a lane of a family that expects the canary's pods, with the engine, client and rate of the measured lanes.
func (w *World) controlLane(f record.Family, name, protocol string, to *workload) LaneSpec {
	return LaneSpec{Name: f.Named(name), Service: to.name, Target: to.targetFor(f, protocol), Rate: w.canaryRate(), Control: true, Protocol: protocol,
		Local: to.answersLocally(w), Terminated: w.terminated(), Close: closing.Of(w.Params), Node: w.fixedNode(),
		Backends: []string{w.run.canary.name + "-"}, Host: w.run.canary.name}
}

// prove injects the known faults, one after the other, while the control lanes run.
func (w *World) prove(ctx context.Context) error {
	var lanes []LaneSpec
	for _, f := range w.families() {
		lanes = append(lanes, w.controlLane(f, canaryLane, record.ProtocolNew, w.run.canary))
		if w.speaksUDP() {
			lanes = append(lanes, w.controlLane(f, canaryUDP, record.ProtocolFresh, w.run.canary))
		}
	}
	var stops []func() error
	for _, l := range lanes {
		stop, err := w.Prober.StartLane(ctx, l)
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	if err := w.Clock.Sleep(ctx, time.Second); err != nil {
		return err
	}
	for i, p := range w.proofs() {
		id := fmt.Sprintf("proof-%d", i+1)
		if err := w.Step(ctx, id+": "+p.String(), "", func(ctx context.Context) error { return w.injectProof(ctx, id, p) }); err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, p.rest()); err != nil {
			return err
		}
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) injectProof(ctx context.Context, id string, p proof) error {
	if p.kind == faultMisroute {
		return w.misroute(ctx, id, p)
	}
	f := FaultSpec{ID: id, Kind: p.kind, Target: w.run.canary.targetFor(p.family, record.ProtocolNew), Node: p.node, For: p.For, Lane: p.onLane(), Control: true}
	if p.lane == canaryUDP {
		f.Protocol = "udp"
	}
	return w.Site.faults.Inject(ctx, f)
}

// misroute probes the measured Service and expects the canary's pods: each answer counts as misrouted.
func (w *World) misroute(ctx context.Context, id string, p proof) error {
	inject := func(state string) {
		w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: id, Text: fmt.Sprintf("injected %s of %s: %s", p.kind, p.For, state),
			Body: record.Fault{Fault: p.kind, State: state, ID: id, Lane: p.onLane(), Control: true}})
	}
	lane := w.controlLane(p.family, canaryWrong, record.ProtocolNew, w.run.main)
	lane.Lasts = p.For + time.Second
	stop, err := w.Prober.StartLane(ctx, lane)
	if err != nil {
		return err
	}
	inject("begin")
	err = w.Clock.Sleep(ctx, p.For)
	inject("end")
	if stopped := stop(); err == nil {
		err = stopped
	}
	return err
}
