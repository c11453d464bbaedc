package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Run runs a scenario on a world: it deploys the workload and the canary, starts the lanes, proves the detector,
// disturbs, and measures on. baseline and settle are the times before and after. A site without the capabilities of the
// scenario is an error.
func Run(ctx context.Context, s Scenario, w *World) error {
	w.phase("setup", record.Phase{})
	if err := s.Check(w.Site.Offers(), w.Params); err != nil {
		return err
	}
	setup := s.setup(w.Params)
	if err := w.setUp(ctx, s, setup); err != nil {
		return err
	}
	leave, err := w.probePods(ctx)
	if err != nil {
		return err
	}
	if err := w.runBaseline(ctx, setup.BriefCanary); err != nil {
		return err
	}
	w.phase(phaseScenario, s.demands(w.Params))
	w.run.began = w.Clock.Now()
	w.writeHead(s)
	if err := s.Run(ctx, w); err != nil {
		return err
	}
	w.excuseExits("", w.run.began, w.Params.exitFall())
	w.write(timeline.Step{Verb: timeline.End})
	if err := w.closeClients(); err != nil {
		return err
	}
	return w.settle(ctx, leave)
}

// setUp deploys the workload and the canary, prepares the scenario and starts the lanes.
func (w *World) setUp(ctx context.Context, s Scenario, setup Setup) error {
	w.run.datagrams, w.run.unwritten = setup.Datagrams, !s.written(w.Params)
	w.run.main = &workload{name: "web", replicas: Replicas.Of(w.Params),
		policy: corev1.ServiceExternalTrafficPolicy(TrafficPolicy.Of(w.Params)), gated: setup.Gated, datagrams: w.speaksUDP()}
	w.run.canary = &workload{name: canaryName, replicas: 1, policy: corev1.ServiceExternalTrafficPolicyCluster, datagrams: w.speaksUDP()}
	for _, k := range []*workload{w.run.main, w.run.canary} {
		if err := w.Step(ctx, "deploy "+k.name, "", func(ctx context.Context) error { return k.deploy(ctx, w) }); err != nil {
			return err
		}
	}
	if err := w.createOthers(ctx); err != nil {
		return err
	}
	if s.Prepare != nil {
		if err := w.Step(ctx, "prepare", "", func(ctx context.Context) error { return s.Prepare(ctx, w) }); err != nil {
			return err
		}
	}
	if err := w.Step(ctx, "see that no proxy has failed", "", w.checkProxies); err != nil {
		return err
	}
	if err := w.findPaths(ctx); err != nil {
		return err
	}
	return w.startLanes(ctx, s)
}

// runBaseline proves the detector while nothing disturbs. A brief canary ends with the proof.
func (w *World) runBaseline(ctx context.Context, briefCanary bool) error {
	begin := w.Clock.Now()
	w.phase(phaseBaseline, record.Phase{Attempts: minAttempts})
	if err := w.prove(ctx); err != nil {
		return fmt.Errorf("proving the detector: %w", err)
	}
	if briefCanary {
		if err := w.deleteCanary(ctx); err != nil {
			return err
		}
	}
	return w.Clock.Sleep(ctx, begin+baseline.Of(w.Params)-w.Clock.Now())
}

// recoveryTime is the part of the settle phase that is for the recovery check. Before it nothing changes in the cluster, so
// that losses which last are counted as they are.
const recoveryTime = 5 * time.Second

// settle lets traffic flow after the scenario, and begins the recovery check recoveryTime before its end. A check that takes
// longer goes on without traffic, so that a proxy that does not follow loses no more connections by being checked.
func (w *World) settle(ctx context.Context, leave func() error) error {
	w.phase(phaseSettle, record.Phase{})
	end := w.Clock.Now() + settle.Of(w.Params)
	if err := w.Clock.Sleep(ctx, max(0, settle.Of(w.Params)-recoveryTime)); err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return w.checkRecovery(ctx) })
	both.Go(func() error {
		if err := w.Clock.Sleep(ctx, max(0, end-w.Clock.Now())); err != nil {
			return err
		}
		return w.stopLanes(leave)
	})
	return both.Wait()
}

// stopLanes ends the measured lanes and the pod lanes, and with them the last phase.
func (w *World) stopLanes(leave func() error) error {
	if err := leave(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.run.lanes)) {
		if err := w.stopLane(name); err != nil {
			return err
		}
	}
	w.phase("end", record.Phase{})
	return nil
}

// checkProxies returns the first error that a proxy has reported, where the proxies are known.
func (w *World) checkProxies(context.Context) error {
	if proxies, err := w.proxies(); err == nil {
		return proxies.SyncError()
	}
	return nil
}

// mainLane is a lane of a family and a protocol to the measured Service.
func (w *World) mainLane(f record.Family, protocol string) LaneSpec {
	return LaneSpec{Name: f.Named(protocol), Protocol: protocol, Service: w.run.main.name, Target: w.run.main.targetFor(f, protocol), Rate: w.Rate,
		Local: w.run.main.answersLocally(w), Terminated: w.terminated(), Close: closing.Of(w.Params), Node: w.fixedNode(),
		Backends: []string{w.run.main.name + "-"}, Host: w.run.main.name}
}

// startLanes starts the scenario's own lanes and then those of the parameter lanes. Connections that stay open are
// opened first: between the connections of another lane at a steady rate, a round-robin proxy would give all of them one
// backend.
func (w *World) startLanes(ctx context.Context, s Scenario) error {
	var specs []LaneSpec
	if s.Lanes != nil {
		specs = s.Lanes(w)
	}
	for _, spec := range specs {
		w.run.ownKinds = append(w.run.ownKinds, spec.Protocol)
	}
	w.run.lanes = map[string]func() error{}
	for _, spec := range slices.Concat(specs, w.parameterLanes(), w.unservedLanes()) {
		stop, err := w.Prober.StartLane(ctx, spec)
		if err != nil {
			return fmt.Errorf("starting the lane %s: %w", spec.Name, err)
		}
		w.run.lanes[spec.Name] = stop
		if spec.Connections > 0 {
			opening := time.Duration(float64(spec.Connections) / spec.Rate * float64(time.Second))
			if err := w.Clock.Sleep(ctx, opening); err != nil {
				return err
			}
		}
	}
	return nil
}

// probePods probes each ready pod of the measured Service at its own address, where the parameter direct is on.
func (w *World) probePods(ctx context.Context) (stop func() error, err error) {
	if !direct.Of(w.Params) {
		return func() error { return nil }, nil
	}
	pods, err := part[PodProber](w.Site, PodLanes)
	if err != nil {
		return nil, err
	}
	stop, err = pods.ProbePods(ctx, LaneSpec{Service: w.run.main.name, Rate: w.Rate, Control: true, Role: record.RolePod, Protocol: record.ProtocolNew,
		Close: closing.Of(w.Params), Backends: []string{w.run.main.name + "-"}, Host: w.run.main.name}, httpPort)
	if err != nil {
		return nil, fmt.Errorf("asking the pods at their own addresses: %w", err)
	}
	return stop, nil
}

// stopLanesOf ends the measured lanes of a protocol, of each family.
func (w *World) stopLanesOf(protocol string) error {
	for _, f := range w.families() {
		if err := w.stopLane(f.Named(protocol)); err != nil {
			return err
		}
	}
	return nil
}

// stopLane ends a measured lane.
func (w *World) stopLane(name string) error {
	stop := w.run.lanes[name]
	if stop == nil {
		return fmt.Errorf("no lane %s runs", name)
	}
	delete(w.run.lanes, name)
	if err := stop(); err != nil {
		return fmt.Errorf("stopping the lane %s: %w", name, err)
	}
	return nil
}

func (w *World) terminated() bool { return w.Params.terminated() }

// terminated reports whether the load balancer terminates connections.
func (p Params) terminated() bool { return BalancerKind.Of(p) == HAProxy }
