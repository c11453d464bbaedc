package analysis

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The limits beyond which a measurement is not trusted; the sources are named in the documentation of each rule.
const (
	achievedShare = 0.99        // of the declared rate, over the lane's own time
	coverageSlack = time.Second // between the phases and the lane's first and last attempts, besides deadlines and a gap
)

// judge gives the verdict and its reasons. Whatever makes the measurement untrustworthy comes before any loss.
func (a *Analysis) judge(r *Report, p proof) (Verdict, []string) {
	skipped := a.skipped()
	if len(skipped) > 0 && len(a.Lanes) == 0 && a.distrust == "" {
		return Skipped, skipped
	}
	var why []string
	start := a.sinceStart()
	faulty := len(start.lost.exceeded()) > 0
	if faulty { // of other Services, too
		p.alarms = a.unexplained(p.alarms)
		p.missed = p.notFound(func(in *injection) bool { return p.later(in) || a.metOwnOutage(in) })
	}
	for _, rule := range [...]func() []string{a.badRecord, a.badPhases, a.badSteps, a.badGuards, a.badLanes, a.badFleet, a.noBaseline, a.badBudget,
		func() []string { return a.badProof(p) }, func() []string { return a.badRecovery(r.Recovery) }} {
		why = append(why, rule()...)
	}
	if !faulty {
		why = append(why, start.unclear...)
	}
	if len(why) > 0 {
		return Invalid, append(why, a.gaps()...)
	}
	doubt := p.doubt()
	lost, fails, unmeasured := a.losses(r, doubt)
	verdict := Pass
	if len(fails) > 0 {
		verdict = Fail
	} else if why := slices.Concat(doubt.texts(), unmeasured, a.vacuous(), a.unrecorded(), a.guarded()); len(why) > 0 {
		return Invalid, append(why, a.gaps()...)
	}
	return verdict, slices.Concat([]string{r.Sentence()}, fails, doubt.texts(), r.ExcuseTexts(), lost.covered(), start.own, skipped, a.gaps(), a.guarded())
}

// losses are the limits that the run exceeds, and those that too few attempts measured, as sentences. Where the detector has failed, only
// losses before count; a proxy that does not follow changes is known without it.
func (a *Analysis) losses(r *Report, d doubt) (lost *ledger, fails, unmeasured []string) {
	if d.detector {
		lost = a.ledger(d.since)
		fails = lost.exceeded()
	} else {
		lost = a.ledger(a.End)
		fails = lost.exceeded()
		for _, l := range r.Lanes {
			fails = append(fails, a.tooSlowFor(l)...)
		}
		var tooSlow []string
		tooSlow, unmeasured = a.tooSlowByRule(r.Lanes)
		fails = append(fails, tooSlow...)
	}
	for _, n := range r.Recovery.Failed() {
		fails = append(fails, n.Text)
	}
	return lost, append(fails, a.removals()...), unmeasured
}

// removals tell which rules of other programs the proxy removed.
func (a *Analysis) removals() (texts []string) {
	for _, e := range a.Events {
		if foreign, is := e.Body.(record.Interference); is && foreign.State == record.InterferenceRemoved {
			texts = append(texts, fmt.Sprintf("%s, before %s", foreign.What, units.At(units.Seconds(e.At))))
		}
	}
	return texts
}

// skipped tells which lanes could not be measured, and why. A run that measured none of them is skipped.
func (a *Analysis) skipped() []string {
	var why []string
	for _, e := range a.Events {
		if e.Kind() == record.KindSkipped {
			why = append(why, fmt.Sprintf("lane %s was skipped: %s", e.Object, e.Text))
		}
	}
	return why
}

func (a *Analysis) badRecord() []string {
	var why []string
	if a.distrust != "" {
		why = append(why, a.distrust)
	}
	why = append(why, a.damage...)
	for _, l := range a.Lanes {
		if missing, _, twice := l.lost(); missing > 0 || twice > 0 {
			why = append(why, fmt.Sprintf("lane %s lost records: of %s numbers %d are missing and %d stand twice", l.Name,
				units.Thousands(l.attempts+missing-twice), missing, twice))
		}
	}
	return why
}

func (a *Analysis) badPhases() []string {
	var why []string
	for _, name := range [...]string{"baseline", "scenario", "end"} {
		if _, ok := a.Phase(name); !ok && (a.early == "" || name != "end") { // the heading tells where an early end was
			why = append(why, fmt.Sprintf("the record has no phase %q: the run did not get that far", name))
		}
	}
	return why
}

func (a *Analysis) badSteps() []string {
	var why []string
	scenario, ok := a.Phase("scenario")
	completed := 0
	for _, e := range a.Events {
		step, is := e.Body.(record.Step)
		if !is {
			continue
		}
		switch step.State {
		case record.StepFailed:
			why = append(why, fmt.Sprintf("step %s failed at %s: %s", e.Object, units.At(units.Seconds(e.At)), FirstOf(step.Error, e.Text)))
		case record.StepEnd:
			if ok && e.At >= scenario.From {
				completed++
			}
		}
	}
	if completed == 0 {
		why = append(why, "no step of the scenario was completed")
	}
	return why
}

// stallShare is the part of a measurement in which guards with a window may trip. Beyond it no part is trusted.
const stallShare = 0.10

// badGuards tells of the guards that concern the whole run.
func (a *Analysis) badGuards() []string {
	var stalls []window
	for _, g := range a.stalls {
		stalls = append(stalls, window{g.From, g.Until})
	}
	tooLong := float64(covered(stalls)) > stallShare*float64(a.End-a.scenarioBegan())
	return a.guardTexts(func(g record.Guard) bool { return g.Until == 0 || tooLong })
}

// guarded tells of the guards that concern a part of the run.
func (a *Analysis) guarded() []string {
	return a.guardTexts(func(g record.Guard) bool { return g.Until > 0 })
}

func (a *Analysis) guardTexts(which func(record.Guard) bool) (texts []string) {
	const most = 20 // a guard that trips each second says nothing new
	tripped := 0
	for _, e := range a.Events {
		if g, is := e.Body.(record.Guard); !is || !which(g) {
			continue
		}
		if tripped++; tripped <= most {
			texts = append(texts, fmt.Sprintf("a guard of the measurement tripped at %s: %s", units.At(units.Seconds(e.At)), FirstOf(e.Text, e.Object)))
		}
	}
	if tripped > most {
		texts = append(texts, fmt.Sprintf("guards of the measurement tripped %s times in all", units.Thousands(tripped)))
	}
	return texts
}

func FirstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return "no reason was recorded"
}

func (a *Analysis) badLanes() []string {
	var why []string
	if len(a.Measured()) == 0 {
		why = append(why, "no lane measured the subject")
	}
	for _, l := range a.Lanes {
		if l.Role != "" { // evidence beside a lane: no verdict rests on it
			continue
		}
		if len(l.Records) == 0 {
			if !l.fleet.lost() && !l.endedUnused() { // else its gap, or its end, tells
				why = append(why, fmt.Sprintf("lane %s made no attempt", l.Name))
			}
			continue
		}
		why = append(why, l.distrust(a.stalls)...)
		if !l.Control {
			why = append(why, a.uncovered(l)...)
		}
	}
	return why
}

// distrust lists what was wrong with the probe itself: attempts that failed by its own fault, late starts, a low rate.
// Attempts in stalls are excused.
func (l *Lane) distrust(stalls []record.Guard) []string {
	var why []string
	ours := 0
	var lateness []record.Weighted
	for _, v := range l.folded.late.Append(nil) {
		lateness = append(lateness, record.Weighted{Value: min(v.Value, record.LatenessLimit), N: v.N}) // what a bucket has is not later
	}
	for i := range l.Records {
		switch r := &l.Records[i]; {
		case r.Class == record.Probe:
			if !slices.ContainsFunc(stalls, func(g record.Guard) bool { return r.Intended >= g.From && r.Intended < g.Until }) {
				ours++
			}
		case !r.bucket():
			lateness = append(lateness, record.Weighted{Value: time.Duration(r.late), N: 1})
		}
	}
	if ours > 0 {
		why = append(why, fmt.Sprintf("lane %s: %s of %s failed by the probe's own fault", l.Name, units.Plural(ours, "attempt"), units.Thousands(l.attempts)))
	}
	if l.unlogged > 0 {
		why = append(why, fmt.Sprintf("lane %s: the balancer's log lacks %s of %s that were answered: nobody knows their nodes", l.Name,
			units.Thousands(l.unlogged), units.Plural(l.attempts, "attempt")))
	}
	limit := max(record.LatenessLimit, l.Interval)
	if p99 := record.QuantileOf(lateness, 0.99); p99 > limit {
		why = append(why, fmt.Sprintf("lane %s fell behind: attempts started %s late (p99), %s is the limit", l.Name, units.MsText(units.Millis(p99)), units.MsText(units.Millis(limit))))
	}
	expected := l.Rate * (l.end - l.Begin).Seconds()
	_, stated, _ := l.lost()
	if float64(l.attempts+stated) < achievedShare*expected-1 { // the schedule's last attempt may be due a gap later
		why = append(why, fmt.Sprintf("lane %s made %s attempts in %s, its rate of %s per second asks for %s", l.Name,
			units.Thousands(l.attempts), units.MsText(units.Millis(l.end-l.Begin)), strconv.FormatFloat(l.Rate, 'f', -1, 64), units.Thousands(int(expected+0.5))))
	}
	return why
}

// uncovered tells when the lane did not probe from the baseline to the end (its own, where the scenario ends it before
// the run is over). The end may be recorded after the last attempts were given their deadlines.
func (a *Analysis) uncovered(l *Lane) []string {
	slack := coverageSlack + l.Interval
	baseline, began := a.Phase("baseline")
	end, ended := a.Phase("end")
	var why []string
	if began && !l.fleet.joined && l.Begin > baseline.From+slack {
		why = append(why, fmt.Sprintf("lane %s began at %s, the baseline at %s", l.Name, units.At(units.Seconds(l.Begin)), units.At(units.Seconds(baseline.From))))
	}
	until, of := end.From, "the run"
	if l.ended > 0 && l.ended < until {
		until, of = l.ended, "its Service"
	}
	if ended && !l.Partial && !l.fleet.lost() && l.end < until-slack-l.Deadline {
		why = append(why, fmt.Sprintf("lane %s ended at %s, %s at %s", l.Name, units.At(units.Seconds(l.end)), of, units.At(units.Seconds(until))))
	}
	return why
}

// noBaseline tells of measured lanes without an attempt before anything was done to the subject.
func (a *Analysis) noBaseline() []string {
	scenario, ok := a.Phase("scenario")
	if !ok {
		return nil // told by badPhases
	}
	var why []string
	for _, l := range a.Measured() {
		if l.attemptsBefore(scenario.From-l.fleet.clock) == 0 && len(l.Records) > 0 && !l.fleet.joined {
			why = append(why, fmt.Sprintf("lane %s has no attempt before the scenario began: there is no baseline", l.Name))
		}
	}
	return why
}

// badProof tells what is wrong with the proof of the detector.
func (a *Analysis) badProof(p proof) []string {
	why := slices.Concat(p.broken, p.missed, p.unproved)
	if len(p.injections) == 0 {
		why = append(why, "the detector was not proved: no known fault was injected for a control lane")
	}
	const most = 3
	for i, o := range p.alarms {
		if i == most {
			why = append(why, fmt.Sprintf("and %s more that nobody injected", units.Plural(len(p.alarms)-most, "control outage")))
			break
		}
		why = append(why, fmt.Sprintf("a false alarm: control lane %s saw an outage of %s at %s that nobody injected", o.Lane.Name,
			units.Range(units.Millis(o.lower), units.Millis(o.upper)), units.At(units.Seconds(o.from))))
	}
	return why
}
