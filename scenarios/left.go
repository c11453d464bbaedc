package scenarios

import "time"

// Left is about how long a run goes on from the beginning of a phase, by its parameters. It is sure for the last phase, and 0 where the
// parameters do not determine it.
func (s Scenario) Left(phase string, p Params, nodes int) (left time.Duration, sure bool) {
	setup := s.setup(p)
	run := setup.Lasts + time.Duration(nodes)*setup.PerNode
	switch {
	case phase == phaseSettle:
		return settle.Of(p), true
	case run == 0:
		return 0, false
	case phase == phaseScenario:
		return run + settle.Of(p), false
	case phase == phaseBaseline:
		return baseline.Of(p) + run + settle.Of(p), false
	}
	return 0, false
}

// Length is about how long a run takes by its own clock, from the baseline on; 0 where that is not known.
func (s Scenario) Length(p Params, nodes int) time.Duration {
	left, _ := s.Left(phaseBaseline, p, nodes)
	return left
}

// startTime is what a pod of the lab takes to start and become ready.
const startTime = 2 * time.Second

// exitDelay is what a pod takes to end.
func (p Params) exitDelay() time.Duration { return PreStop.Of(p) + shutdownDelay.Of(p) }

// rollTime is what the replacement of pods takes, one after the other, until the last old one is gone.
func (p Params) rollTime(pods int) time.Duration {
	return time.Duration(pods)*startTime + p.exitDelay()
}

// memberTime is what the load balancer takes to follow.
func (p Params) memberTime() time.Duration {
	return time.Duration(CheckFall.Of(p)) * CheckInterval.Of(p) / 2
}
