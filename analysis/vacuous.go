package analysis

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// vacuous tells why a run without a loss shows nothing: what its phases demand was not measured. A record whose phases demand
// nothing is never vacuous.
func (a *Analysis) vacuous() []string {
	var why []string
	for _, p := range a.Phases {
		why = append(why, p.cutOff()...)
		if p.Attempts == 0 && p.Loss == 0 { // it demands nothing: its attempts need not be counted
			continue
		}
		window := p
		if p.Disturbs {
			window.To = a.End
		}
		attempts, paths := a.attemptsIn(window)
		why = append(why, a.tooFew(window, attempts, paths)...)
		why = append(why, a.tooSlow(p, paths)...)
	}
	return append(why, a.unanswered()...)
}

// cutOff tells that a phase ended early, as a soak does after its first failure.
func (p Phase) cutOff() []string {
	length := p.To - p.From
	if length >= p.Lasts {
		return nil
	}
	return []string{fmt.Sprintf("too little was measured: the phase %s ended after %s, at its first failure, and %s were planned", p.Name, length.Round(time.Second), p.Lasts)}
}

// attemptsIn counts the attempts of measured lanes in a phase, and the nodes that they went over; at least one.
func (a *Analysis) attemptsIn(p Phase) (attempts, paths int) {
	nodes := map[uint16]bool{}
	for _, l := range a.Measured() {
		for i := range l.Records {
			if r := &l.Records[i]; r.Intended >= p.From && r.Intended < p.To {
				attempts += int(r.N)
				nodes[r.Node] = true
			}
		}
	}
	delete(nodes, 0)
	return attempts, max(1, len(nodes))
}

// rate is that of all measured lanes together, in attempts per second.
func (a *Analysis) rate() (rate float64) {
	for _, l := range a.Measured() {
		rate += l.Rate
	}
	return rate
}

// slowest is the lowest rate of a measured lane. A loss can be one of a single lane, such as of UDP.
func (a *Analysis) slowest() float64 {
	slowest := math.Inf(1)
	for _, l := range a.Measured() {
		slowest = min(slowest, l.Rate)
	}
	return slowest
}

// tooFew tells that a phase has fewer attempts than it demands, and how many would be enough.
func (a *Analysis) tooFew(p Phase, attempts, paths int) []string {
	need := p.Attempts * paths
	if attempts >= need {
		return nil
	}
	enough := units.MsText(units.Millis(roundUp(float64(need)/a.rate()))) + " of it would suffice"
	if length := (p.To - p.From).Seconds(); length >= 1 {
		enough = rateText(float64(need)/length/float64(max(1, len(a.Measured())))) + ", or " + enough
	}
	return []string{fmt.Sprintf("too little was measured: the phase %s has %s on %s, and %d on each are the least; %s",
		p.Name, units.Plural(attempts, "attempt"), units.Plural(paths, "path"), p.Attempts, enough)}
}

// tooSlow tells that an outage of the length that the phase is about could pass between two attempts on its path.
func (a *Analysis) tooSlow(p Phase, paths int) []string {
	between := time.Duration(float64(paths) / a.slowest() * float64(time.Second))
	if p.Loss == 0 || 2*between <= p.Loss {
		return nil
	}
	most := paths // at a higher rate attempts may meet nodes that they have not met
	if paths > 1 {
		most = max(paths, len(a.Run.Nodes))
	}
	return []string{fmt.Sprintf("too little was measured: a faulty subject loses connections for %s, and a path has an attempt every %s; %s",
		units.MsText(units.Millis(p.Loss)), units.MsText(units.Millis(between)), rateText(2*float64(most)/p.Loss.Seconds()))}
}

// rateText tells the rate of each lane that would suffice, as the option of a run.
func rateText(each float64) string {
	digits := math.Pow(10, math.Ceil(math.Log10(each))-2)
	return "a rate of " + strconv.FormatFloat(math.Ceil(each/digits-1e-9)*digits, 'g', 2, 64) + " per second would suffice"
}

func roundUp(seconds float64) time.Duration {
	return (time.Duration(seconds*float64(time.Second)) + time.Second - 1).Truncate(time.Second)
}

// unanswered tells that rollouts ended whose pods never answered a measured lane.
func (a *Analysis) unanswered() []string {
	scenario, _ := a.Phase("scenario")
	rollouts := 0
	for _, e := range a.Events {
		if r, is := e.Body.(record.Rollout); is && r.State == record.RolloutEnd && e.At >= scenario.From {
			rollouts++
		}
	}
	answered := map[string]bool{}
	for _, l := range a.Measured() {
		for i := range l.Records {
			if g := a.Backends[l.Records[i].Backend].Generation; g != "" {
				answered[g] = true
			}
		}
	}
	if len(answered) == 0 || len(answered) > rollouts {
		return nil
	}
	return []string{fmt.Sprintf("too little was measured: %s made %d generations of pods with the first one, and connections reached %d of them",
		units.Plural(rollouts, "rollout"), rollouts+1, len(answered))}
}
