package scenarios

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// minAttempts is the least number of attempts on each path, before the scenario and from its begin on, that a pass rests on.
const minAttempts = 5

// proofTime is what the proof can take: a shorter baseline lasts until its end.
const proofTime = 20 * time.Second

// minLoss is the shortest loss for which a slow lane is refused: a SYN that is lost is sent again after a second.
const minLoss = time.Second

// demands is the least that a pass of the scenario rests on.
func (s Scenario) demands(p Params) record.Phase {
	disturbing := s.disturbing(p)
	return record.Phase{Attempts: minAttempts, Loss: s.loss(p, disturbing), Disturbs: len(disturbing) > 0, Lasts: s.setup(p).Least}
}

// CheckRate returns an error when a run cannot pass because it measures too little: fewer attempts than demands asks for in the baseline, or
// a path without an attempt during the loss that a faulty proxy causes, or a proof with a fault that its rate is too low for. rate is that of each lane, in attempts per second.
func (s Scenario) CheckRate(p Params, rate float64, nodes int) error {
	if err := p.checkShortest(rate); err != nil {
		return err
	}
	if s.Lanes != nil { // they have rates of their own
		return nil
	}
	d, paths := s.demands(p), p.paths(nodes)
	all := rate * float64(len(p.laneNames())*len(p.Family().Each()))
	length := max(baseline.Of(p), proofTime)
	need, most := float64(d.Attempts*paths), all*length.Seconds()
	switch least := 2 * float64(paths) / d.Loss.Seconds(); {
	case most < need:
		return fmt.Errorf("%g attempts per second are too few: a baseline of %s has %.0f attempts, and %.0f on %d paths are the least; "+
			"give %.2g attempts per second (--rate, of a soak --probe-every), or --set baseline=%s", all, length, most, need, paths,
			math.Ceil(100*need/length.Seconds())/100, time.Duration(math.Ceil(need/all))*time.Second)
	case rate < least:
		return fmt.Errorf("%g attempts per second of a lane are too few: a faulty proxy loses connections for %s, and each of %d paths needs two attempts in that time; "+
			"give %.2g attempts per second (--rate, of a soak --probe-every)", rate, d.Loss, paths, math.Ceil(100*least)/100)
	}
	return nil
}

// paths is the number of nodes that the attempts of a run go over while nothing is disturbed.
func (p Params) paths(nodes int) int {
	switch {
	case !p.ThroughBalancer():
		return 1
	case TrafficPolicy.Of(p) == string(corev1.ServiceExternalTrafficPolicyLocal):
		return min(nodes, Replicas.Of(p))
	}
	return nodes
}

// disturbing are the steps that disturb the cluster or its proxies.
func (s Scenario) disturbing(p Params) []string {
	if s.Steps == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Steps(p)), func(step string) bool { return !disturbs(step) })
}

// disturbs reports whether a step changes the cluster or its proxies. The steps without a verb all do.
func disturbs(step string) bool {
	return !slices.Contains(timeline.Verbs(), step) || timeline.Disturbs(step)
}

// loss is the longest loss that the steps are known to cause with a faulty proxy. A changed backend is lost until the load
// balancer removes its node; an absent proxy, until it is back.
func (s Scenario) loss(p Params, disturbing []string) time.Duration {
	proxies := func(step string) bool { return timeline.NeedOf(step) == timeline.NeedsProxies }
	if len(disturbing) > 0 && !slices.ContainsFunc(disturbing, func(step string) bool { return !proxies(step) }) {
		return max(minLoss, downtime.Of(p), s.setup(p).Away)
	}
	return max(minLoss, time.Duration(CheckFall.Of(p))*CheckInterval.Of(p))
}
