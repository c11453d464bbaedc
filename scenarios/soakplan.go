package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// churnKind is one kind of disturbance of a soak.
type churnKind struct {
	rate  TypedParameter[int] // how often in an hour
	name  string              // of one disturbance
	steps []string
	do    func(w *World, ctx context.Context, random *rand.Rand, busy *endpointRing) error
}

// perHour is the parameter for the number of disturbances of a kind in an hour.
func perHour(key, value, help string) TypedParameter[int] {
	return newNumber(key, value, help, 0, 3600)
}

// The rates of the kinds with needs of their own: scaling out needs a free node, flaps need pods with a readiness gate, blips a controllable API server.
var (
	scaleRate = perHour("scalesPerHour", "1", "how often in an hour a pod is added and taken away again")
	flapRate  = perHour("flapsPerHour", "0", "how often in an hour one pod becomes unready and ready again")
	blipRate  = perHour("apiBlipsPerHour", "0", "how often in an hour the API server is away from all proxies (replay control plane only)")
	burstRate = perHour("burstsPerHour", "0", "bursts of changes of another Service's endpoints in an hour")
	// nodeLossRate needs keepGoing, because each loss of a node costs connections.
	nodeLossRate = perHour("nodeLossesPerHour", "0", "how often in an hour a node loses its power without warning, and boots again; needs keepGoing=on")
)

// churnKinds are all kinds. Those with a default above 0 are common in clusters, and cost no connection with a correct
// proxy and load balancer; a lost node always costs some, and flaps do with policy Local.
var churnKinds = []churnKind{
	{perHour("rolloutsPerHour", "10", "rollouts of the Deployment in an hour"), "rollout", rollSteps,
		func(w *World, ctx context.Context, _ *rand.Rand, _ *endpointRing) error {
			if err := w.rollOut(ctx); err != nil {
				return err
			}
			w.recordRolloutEnd() // without a wait for the load balancer: one that does not follow is a symptom
			return nil
		}},
	{perHour("restartsPerHour", "1", "restarts of one node's proxy in an hour"), "restart of a proxy", []string{"proxy stop", "proxy kill", "proxy start"},
		func(w *World, ctx context.Context, random *rand.Rand, _ *endpointRing) error {
			return w.restartProxy(ctx, w.randomNode(random))
		}},
	{scaleRate, "scale out and in", scaleSteps,
		func(w *World, ctx context.Context, _ *rand.Rand, _ *endpointRing) error { return w.scaleOutAndIn(ctx) }},
	{flapRate, "flap", gateSteps,
		func(w *World, ctx context.Context, random *rand.Rand, _ *endpointRing) error {
			return w.flapPod(ctx, fmt.Sprintf("%s#%d", w.run.main.name, 1+random.IntN(w.run.main.replicas)))
		}},
	{nodeLossRate, "loss of a node", []string{"node off", "node on", "expect rolled-out"},
		func(w *World, ctx context.Context, random *rand.Rand, _ *endpointRing) error {
			return w.loseAndBoot(ctx, w.randomNode(random))
		}},
	{blipRate, "API blip", []string{"api away", "api back", "expect watching"},
		func(w *World, ctx context.Context, _ *rand.Rand, _ *endpointRing) error {
			return w.apiAway(ctx, blipFor.Of(w.Params))
		}},
	{burstRate, "burst", []string{"endpoints create", "endpoints set"},
		func(w *World, ctx context.Context, _ *rand.Rand, busy *endpointRing) error {
			if at := burstAt.Of(w.Params); !at.any {
				return w.burstAfterMinute(ctx, at.after, busy)
			}
			return w.burst(ctx, w.Clock.Now(), busy)
		}},
}

// churnRates are the parameters of all kinds.
func churnRates() (all []Parameter) {
	for _, kind := range churnKinds {
		all = append(all, kind.rate.Parameter)
	}
	return all
}

// soakSteps are the steps of the churn that is on, and of the restarts after a failure.
func soakSteps(p Params) []string {
	steps := []string{"proxy stop", "proxy kill", "proxy start"}
	if drainedPorts.Of(p) > 0 {
		steps = append(steps, "workload deploy", "client open", "pod unready", "expect unready")
	}
	for _, kind := range churnKinds {
		if kind.rate.Of(p) > 0 {
			steps = append(steps, kind.steps...)
		}
	}
	for i, step := range steps { // a soak continues without what it waits for
		steps[i] = strings.Replace(step, "expect ", "await ", 1)
	}
	return steps
}

// beginChurn creates the Services of the churn besides the measured one.
func (w *World) beginChurn(ctx context.Context, busy *endpointRing) error {
	if ports := drainedPorts.Of(w.Params); ports > 0 {
		if err := w.drainSecondService(ctx, ports, len(w.Nodes)); err != nil {
			return err
		}
	}
	if burstRate.Of(w.Params) == 0 {
		return nil
	}
	return w.Step(ctx, "deploy busy", "", func(ctx context.Context) error { return w.createBusyService(ctx, busy) })
}

// planned is the number of disturbances of a kind in the given time: at least one of each kind that is on.
func (p Params) planned(kind churnKind, length time.Duration) int {
	rate := kind.rate.Of(p)
	return max(min(1, rate), int(length.Hours()*float64(rate)))
}

// churnText lists the number of disturbances of each kind.
func (p Params) churnText(length time.Duration) string {
	var all []string
	for _, kind := range churnKinds {
		if n := p.planned(kind, length); n > 0 {
			all = append(all, fmt.Sprintf("%d × %s", n, kind.name))
		}
	}
	return strings.Join(all, ", ")
}

// checkChurn refuses a soak without disturbances, and one that its own unavoidable loss would end.
func (p Params) checkChurn() error {
	if nodeLossRate.In(p) && nodeLossRate.Of(p) > 0 && !keepGoing.Of(p) {
		return fmt.Errorf("%s: a node that loses power costs connections with every proxy, and the first failed attempt would end the soak; give %s=on too",
			p.given(nodeLossRate.Parameter), keepGoing.Key)
	}
	if burstRate.In(p) && p.churnText(ChurnFor.Of(p)) == "" {
		return errors.New("all rates of churn are 0: a soak in which nothing happens shows nothing; give one of them, or run the scenario quiet")
	}
	return nil
}

// planChurn spreads the disturbances of each kind evenly over the time, each at a random time of its share.
func (w *World) planChurn(length time.Duration, busy *endpointRing) []disturbance {
	var all []disturbance
	for _, kind := range churnKinds {
		count := w.Params.planned(kind, length)
		for i := range count {
			share := length / time.Duration(count)
			at := time.Duration(i)*share + time.Duration(w.Random.Int64N(int64(share)))
			all = append(all, disturbance{at, fmt.Sprintf("%s %d of %d", kind.name, i+1, count),
				func(ctx context.Context) error { return kind.do(w, ctx, w.Random, busy) }})
		}
	}
	slices.SortStableFunc(all, func(a, b disturbance) int { return cmp.Compare(a.at, b.at) })
	return all
}

func (w *World) randomNode(random *rand.Rand) string { return w.Nodes[random.IntN(len(w.Nodes))] }

// scaleOutAndIn adds a pod, waits until it serves, and removes one.
func (w *World) scaleOutAndIn(ctx context.Context) error {
	normal := w.run.main.replicas
	for _, replicas := range []int{normal + 1, normal} {
		err := w.performVerb(ctx, "workload scale", w.run.main.name, "replicas", strconv.Itoa(replicas))
		if err == nil {
			err = w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime())
		}
		if err != nil {
			w.run.main.replicas = normal
			return fmt.Errorf("scaling to %d: %w", replicas, err)
		}
	}
	return nil
}

// loseAndBoot cuts the power of a node, boots it after its time, and returns when it serves again.
func (w *World) loseAndBoot(ctx context.Context, node string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	before, err := proxies.Pid(node)
	if err != nil {
		return err
	}
	boot := w.Clock.Now() + offFor.Of(w.Params)
	if err := w.performVerb(ctx, "node off", node); err != nil {
		return err
	}
	// The node is booted also where the load balancer has kept it: the soak continues.
	left := w.awaitRemoval(ctx, node)
	if err := w.Clock.Sleep(ctx, max(0, boot-w.Clock.Now())); err != nil {
		return err
	}
	return errors.Join(left, w.bootNode(ctx, node, before))
}
