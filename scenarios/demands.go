package scenarios

import (
	"slices"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// minAttempts is the least number of attempts on each path, before the scenario and from its begin on, that a pass rests on.
const minAttempts = 5

// minLoss is the shortest loss for which a slow lane is refused: a SYN that is lost is sent again after a second.
const minLoss = time.Second

// demands is the least that a pass of the scenario rests on.
func (s Scenario) demands(p Params) record.Phase {
	disturbing := s.disturbing(p)
	return record.Phase{Attempts: minAttempts, Loss: s.loss(p, disturbing), Disturbs: len(disturbing) > 0}
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
