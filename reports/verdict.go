package reports

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// The limits beyond which a measurement is not trusted; the sources are named in the documentation of each rule.
const (
	achievedShare = 0.99        // of the declared rate, over the lane's own time
	coverageSlack = time.Second // between the phases and the lane's first and last attempts, besides deadlines and a gap
)

// judge gives the verdict and its reasons. Whatever makes the measurement untrustworthy comes before any loss.
func (a *analysis) judge(r *Report, p proof) (Verdict, []string) {
	skipped := a.skipped()
	if len(skipped) > 0 && len(a.lanes) == 0 {
		return Skipped, skipped
	}
	var why []string
	for _, rule := range [...]func() []string{a.badRecord, a.badPhases, a.badSteps, a.badGuards, a.badLanes, a.badFleet, a.badBaseline,
		func() []string { return a.badProof(p) }} {
		why = append(why, rule()...)
	}
	if len(why) > 0 {
		return Invalid, append(why, a.gaps()...)
	}
	reasons := []string{r.Sentence()}
	losses := len(reasons)
	budget := a.run.Budget
	if r.Totals.Dropped > budget.Dropped {
		reasons = append(reasons, fmt.Sprintf("%s dropped, the budget allows %s", were(r.Totals.Dropped, "connection"), thousands(budget.Dropped)))
	}
	if r.Totals.Delayed > budget.Delayed {
		reasons = append(reasons, fmt.Sprintf("%s delayed, the budget allows %s", were(r.Totals.Delayed, "connection"), thousands(budget.Delayed)))
	}
	verdict := Pass
	if len(reasons) > losses {
		verdict = Fail
	}
	return verdict, append(append(reasons, skipped...), a.gaps()...)
}

// skipped tells which lanes could not be measured, and why. A run that measured none of them is skipped.
func (a *analysis) skipped() []string {
	var why []string
	for _, e := range a.events {
		if e.Kind() == record.KindSkipped {
			why = append(why, fmt.Sprintf("lane %s was skipped: %s", e.Object, e.Text))
		}
	}
	return why
}

func were(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return plural(n, noun) + " were"
}

func (a *analysis) badRecord() []string {
	why := slices.Clone(a.damage)
	for _, l := range a.lanes {
		if missing, _, twice := l.lost(); missing > 0 || twice > 0 {
			why = append(why, fmt.Sprintf("lane %s lost records: of %s numbers %d are missing and %d stand twice", l.Name,
				thousands(l.attempts+missing-twice), missing, twice))
		}
	}
	return why
}

func (a *analysis) badPhases() []string {
	var why []string
	for _, name := range [...]string{"baseline", "scenario", "end"} {
		if _, ok := a.phase(name); !ok {
			why = append(why, fmt.Sprintf("the record has no phase %q: the run did not get that far", name))
		}
	}
	return why
}

func (a *analysis) badSteps() []string {
	var why []string
	scenario, ok := a.phase("scenario")
	completed := 0
	for _, e := range a.events {
		step, is := e.Body.(record.Step)
		if !is {
			continue
		}
		switch step.State {
		case "failed":
			why = append(why, fmt.Sprintf("step %s failed at %s: %s", e.Object, atText(seconds(e.At)), firstOf(step.Error, e.Text)))
		case "end":
			if ok && e.At >= scenario.from {
				completed++
			}
		}
	}
	if completed == 0 {
		why = append(why, "the event never happened: no step of the scenario was completed")
	}
	return why
}

func (a *analysis) badGuards() []string {
	const most = 20 // a guard that trips each second says nothing new
	var why []string
	tripped := 0
	for _, e := range a.events {
		if e.Kind() != record.KindGuard {
			continue
		}
		if tripped++; tripped <= most {
			why = append(why, fmt.Sprintf("a guard of the measurement tripped at %s: %s", atText(seconds(e.At)), firstOf(e.Text, e.Object)))
		}
	}
	if tripped > most {
		why = append(why, fmt.Sprintf("guards of the measurement tripped %s times in all", thousands(tripped)))
	}
	return why
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return "no reason was recorded"
}

func (a *analysis) badLanes() []string {
	var why []string
	if len(a.measured()) == 0 {
		why = append(why, "no lane measured the subject")
	}
	for _, l := range a.lanes {
		if l.Role != "" { // evidence beside a lane: no verdict rests on it
			continue
		}
		if len(l.records) == 0 {
			if !l.fleet.lost() { // else its gap tells
				why = append(why, fmt.Sprintf("lane %s made no attempt", l.Name))
			}
			continue
		}
		why = append(why, l.distrust()...)
		if !l.Control {
			why = append(why, a.uncovered(l)...)
		}
	}
	return why
}

// distrust lists what was wrong with the probe itself: attempts that failed by its own fault, late starts, a low rate.
func (l *lane) distrust() []string {
	var why []string
	ours := 0
	var lateness []record.Weighted
	for _, v := range l.folded.late.Append(nil) {
		lateness = append(lateness, record.Weighted{Value: min(v.Value, record.LatenessLimit), N: v.N}) // what a bucket has is not later
	}
	for i := range l.records {
		switch r := &l.records[i]; {
		case r.class == record.Probe:
			ours++
		case !r.bucket():
			lateness = append(lateness, record.Weighted{Value: time.Duration(r.late), N: 1})
		}
	}
	if ours > 0 {
		why = append(why, fmt.Sprintf("lane %s: %s of %s failed by the probe's own fault", l.Name, plural(ours, "attempt"), thousands(l.attempts)))
	}
	if l.unlogged > 0 {
		why = append(why, fmt.Sprintf("lane %s: the balancer's log lacks %s of %s that were answered: nobody knows their nodes", l.Name,
			thousands(l.unlogged), plural(l.attempts, "attempt")))
	}
	limit := max(record.LatenessLimit, l.Interval)
	if p99 := record.QuantileOf(lateness, 0.99); p99 > limit {
		why = append(why, fmt.Sprintf("lane %s fell behind: attempts started %s late (p99), %s is the limit", l.Name, msText(millis(p99)), msText(millis(limit))))
	}
	expected := l.Rate * (l.end - l.begin).Seconds()
	_, stated, _ := l.lost()
	if float64(l.attempts+stated) < achievedShare*expected-1 { // the schedule's last attempt may be due a gap later
		why = append(why, fmt.Sprintf("lane %s made %s attempts in %s, its rate of %s per second asks for %s", l.Name,
			thousands(l.attempts), msText(millis(l.end-l.begin)), strconv.FormatFloat(l.Rate, 'f', -1, 64), thousands(int(expected+0.5))))
	}
	return why
}

// uncovered tells when the lane did not probe from the baseline to the end (its own, where the scenario ends it before
// the run is over). The end may be recorded after the last attempts were given their deadlines.
func (a *analysis) uncovered(l *lane) []string {
	slack := coverageSlack + l.Interval
	baseline, began := a.phase("baseline")
	end, ended := a.phase("end")
	var why []string
	if began && !l.fleet.joined && l.begin > baseline.from+slack {
		why = append(why, fmt.Sprintf("lane %s began at %s, the baseline at %s", l.Name, atText(seconds(l.begin)), atText(seconds(baseline.from))))
	}
	if ended && !l.Partial && !l.fleet.lost() && l.end < end.from-slack-l.Deadline {
		why = append(why, fmt.Sprintf("lane %s ended at %s, the run at %s", l.Name, atText(seconds(l.end)), atText(seconds(end.from))))
	}
	return why
}

// badBaseline tells of losses on measured lanes before anything was done to the subject.
func (a *analysis) badBaseline() []string {
	scenario, ok := a.phase("scenario")
	if !ok {
		return nil // told by badPhases
	}
	var why []string
	for _, l := range a.measured() {
		failed, before := 0, 0
		for i := range l.records {
			if r := &l.records[i]; r.intended < scenario.from-l.fleet.clock {
				before += int(r.n)
				if r.failed() {
					failed++
				}
			}
		}
		if failed > 0 {
			why = append(why, fmt.Sprintf("the baseline is not clean: %d of %s attempts of lane %s failed before the scenario began at %s",
				failed, thousands(before), l.Name, atText(seconds(scenario.from))))
		}
		if before == 0 && len(l.records) > 0 && !l.fleet.joined {
			why = append(why, fmt.Sprintf("lane %s has no attempt before the scenario began: there is no baseline", l.Name))
		}
	}
	return why
}

// badProof tells what is wrong with the proof of the detector.
func (a *analysis) badProof(p proof) []string {
	why := append(slices.Clone(p.broken), p.missed...)
	if len(p.injections) == 0 {
		why = append(why, "the detector was not proved: no known fault was injected for a control lane")
	}
	const most = 3
	for i, o := range p.alarms {
		if i == most {
			why = append(why, fmt.Sprintf("and %s more that nobody injected", plural(len(p.alarms)-most, "control outage")))
			break
		}
		why = append(why, fmt.Sprintf("a false alarm: control lane %s saw an outage of %s at %s that nobody injected", o.lane.Name,
			rangeText(millis(o.lower), millis(o.upper)), atText(seconds(o.from))))
	}
	return why
}
