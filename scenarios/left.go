package scenarios

import (
	"time"
)

// Left is about how long a run goes on from the beginning of a phase, by its plan. It is sure for the last phase, and 0 where the
// parameters do not determine it. timeline is the length of a replay.
func Left(scenario, phase string, p Params, nodes int, timeline time.Duration) (left time.Duration, sure bool) {
	if phase == "settle" {
		return settle.Of(p), true
	}
	last, known := lasting[scenario]
	if scenario == ReplayName {
		last, known = func(Params, int) time.Duration { return timeline }, true
	}
	if !known || phase != "scenario" && phase != "baseline" {
		return 0, false
	}
	left = last(p, nodes) + settle.Of(p)
	if phase == "baseline" {
		left += baseline.Of(p)
	}
	return left, false
}

// lasting has about how long the scenarios disturb a lab. A scenario that ends when something has happened is not in it.
var lasting = map[string]func(p Params, nodes int) time.Duration{
	"fault":   func(p Params, _ int) time.Duration { return faultFor.Of(p) },
	"migrate": upgradeTime,
	"quiet":   func(p Params, _ int) time.Duration { return quietFor.Of(p) },
	"recreate": func(p Params, _ int) time.Duration {
		return noService.Of(p) + p.memberTime()
	},
	"restart": func(p Params, nodes int) time.Duration {
		one := downtime.Of(p) + 5*time.Second
		switch restartChange.Of(p) {
		case changeDelete:
			one = max(downtime.Of(p), p.rollTime(1)) + 5*time.Second
		case changeReady:
			one += proxySyncTime
		}
		if restartedNodes.Of(p) == "each" {
			return time.Duration(nodes) * one
		}
		return one
	},
	"rollout": func(p Params, _ int) time.Duration {
		return time.Duration(Rollouts.Of(p)) * (p.rollTime(Replicas.Of(p)) + CheckInterval.Of(p))
	},
	"scale": func(p Params, _ int) time.Duration {
		return noService.Of(p) + p.exitDelay() + startTime + 2*p.memberTime()
	},
	"soak":    func(p Params, _ int) time.Duration { return ChurnFor.Of(p) },
	"upgrade": upgradeTime,
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

func upgradeTime(p Params, nodes int) time.Duration {
	all := time.Duration(nodes) * (downtime.Of(p) + upgradeRest.Of(p))
	if upgradeBack.Of(p) {
		all *= 2
	}
	if rollAtEnd.Of(p) {
		all += p.rollTime(Replicas.Of(p))
	}
	if emptyFirst.Of(p) {
		all += upgradeRest.Of(p) + p.exitDelay() + startTime
	}
	return all
}
