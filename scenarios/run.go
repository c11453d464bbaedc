package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Run deploys the workload and the canary, lets traffic flow, proves the detector, disturbs, and lets traffic flow on.
// The windows before and after are the scenario's `baseline` and `settle`.
func Run(ctx context.Context, s Scenario, w *World) error {
	w.phase("setup")
	w.main = &workload{name: "web", replicas: w.Params.number("replicas"),
		policy: corev1.ServiceExternalTrafficPolicy(w.Params["trafficPolicy"]), gated: s.Gated, datagrams: w.Params.datagrams()}
	w.canary = &workload{name: "canary", replicas: 1, policy: corev1.ServiceExternalTrafficPolicyCluster}
	for _, k := range []*workload{w.main, w.canary} {
		if err := w.Step(ctx, "deploy "+k.name, "", func(ctx context.Context) error { return k.deploy(ctx, w) }); err != nil {
			return err
		}
	}
	if err := w.Step(ctx, "see that no proxy has failed", "", func(context.Context) error { return w.Proxies.Fair() }); err != nil {
		return err
	}
	if err := w.startLanes(ctx, s); err != nil {
		return err
	}
	begin := w.Clock.Now()
	w.phase("baseline")
	if err := w.prove(ctx); err != nil {
		return fmt.Errorf("proving the detector: %w", err)
	}
	if s.BriefCanary {
		if err := w.Cluster.Delete(ctx, w.canary.service()); err != nil {
			return fmt.Errorf("taking the Service %s away: %w", w.canary.name, err)
		}
	}
	if err := w.Clock.Sleep(ctx, begin+w.Params.duration("baseline")-w.Clock.Now()); err != nil {
		return err
	}
	w.phase("scenario")
	if err := s.Run(ctx, w); err != nil {
		return err
	}
	w.phase("settle")
	if err := w.Clock.Sleep(ctx, w.Params.duration("settle")); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.lanes)) {
		if err := w.stopLane(name); err != nil {
			return err
		}
	}
	w.phase("end")
	return nil
}

// mainLane is a lane to the measured Service.
func (w *World) mainLane(name string) LaneSpec {
	return LaneSpec{Name: name, Service: w.main.name, Target: w.main.target(), Rate: w.Rate,
		Local: w.main.policy == corev1.ServiceExternalTrafficPolicyLocal, Terminated: w.terminated(),
		Backends: []string{w.main.name + "-"}, Host: w.main.name}
}

// startLanes starts the scenario's own lanes and then those that the parameters name. Connections that stay open are opened
// before any other goes the same way: at a steady rate between those of another lane, a proxy that takes its backends in
// turn would give all of them the same backend.
func (w *World) startLanes(ctx context.Context, s Scenario) error {
	var specs []LaneSpec
	if s.Lanes != nil {
		specs = s.Lanes(w)
	}
	w.lanes = map[string]func() error{}
	for _, spec := range append(specs, w.namedLanes()...) {
		stop, err := w.Prober.StartLane(ctx, spec)
		if err != nil {
			return fmt.Errorf("starting the lane %s: %w", spec.Name, err)
		}
		w.lanes[spec.Name] = stop
		if spec.Connections > 0 {
			opening := time.Duration(float64(spec.Connections) / spec.Rate * float64(time.Second))
			if err := w.Clock.Sleep(ctx, opening); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopLane ends a measured lane.
func (w *World) stopLane(name string) error {
	stop := w.lanes[name]
	delete(w.lanes, name)
	if err := stop(); err != nil {
		return fmt.Errorf("stopping the lane %s: %w", name, err)
	}
	return nil
}

func (w *World) terminated() bool { return w.Params["loadBalancer"] == "haproxy" }

// proof is a known fault that a run must find on the canary before it may judge anything.
type proof struct {
	kind string
	For  time.Duration
}

// proofs are the known faults for a canary of a rate, in attempts per second. None is shorter than two of its gaps: it may
// well see nothing of one that is. They lie 2.5 s apart, so that the SYN that the first loses is sent again (after 1 s)
// well before the next begins.
func proofs(rate float64) []proof {
	least := time.Duration(2 / rate * float64(time.Second))
	return []proof{{"drop", max(least, 20*time.Millisecond)}, {"drop", max(least, 200*time.Millisecond)},
		{"refuse", max(least, 100*time.Millisecond)}}
}

// proofRate is the least rate at which the canary is probed: a slow lane could not find short faults. What the slow lane
// itself would miss is in the detection floor, as two of its gaps. It is no higher, because in real time a lane may be late
// by a gap, and the canary should not be harder to run than the measured lane.
const proofRate = 20

// prove injects known faults between client and node on a lane of its own to the canary Service, with the same engine
// and client as the measured lane, and its rate if that is not below proofRate.
func (w *World) prove(ctx context.Context) error {
	rate := max(w.Rate, proofRate)
	stop, err := w.Prober.StartLane(ctx, LaneSpec{Name: "canary", Service: w.canary.name, Target: w.canary.target(), Rate: rate,
		Control: true, Terminated: w.terminated(), Backends: []string{w.canary.name + "-"}, Host: w.canary.name})
	if err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, time.Second); err != nil {
		return err
	}
	for i, p := range proofs(rate) {
		id := fmt.Sprintf("proof-%d", i+1)
		err := w.Step(ctx, fmt.Sprintf("%s: %s for %s on the canary", id, p.kind, p.For), "", func(ctx context.Context) error {
			return w.Faults.Inject(ctx, FaultSpec{ID: id, Kind: p.kind, Target: w.canary.target(), For: p.For,
				Attrs: map[string]string{"control": "true", "lane": "canary"}})
		})
		if err != nil {
			return err
		}
		if err := w.Clock.Sleep(ctx, 2500*time.Millisecond); err != nil {
			return err
		}
	}
	return stop()
}
