package timeline

import (
	"context"
	"slices"
	"time"
)

// Runner replays a timeline and reports whether it fails in the expected way. An error ends the search.
type Runner interface {
	Fails(ctx context.Context, t *Timeline) (bool, error)
}

// Trial is the run of one candidate.
type Trial struct {
	Number    int // from 1
	Candidate *Timeline
	Failed    bool      // the candidate fails, and is now the best
	Best      *Timeline // the shortest timeline so far that fails
}

// Minimize removes steps from a failing timeline while it still fails: first steps with their waits, then single steps
// (Zeller's delta debugging, ddmin). It removes steps that are impossible without the removed ones too. Without any one of the
// remaining steps the timeline no longer fails.
//
// Minimize also halves pauses before steps: all at first, a pause that is most of the timeline after each success, and each at last.
// Finally it halves the time after the last step.
//
// Minimize does not run t, which is known to fail. It calls report after each trial, and returns the best timeline so far, also with
// an error of the runner.
func Minimize(ctx context.Context, t *Timeline, r Runner, report func(Trial)) (*Timeline, error) {
	m := &minimizer{ctx: ctx, runner: r, report: report, best: t, ran: map[string]bool{t.String(): true}}
	if err := m.halveAllPauses(); err != nil {
		return m.best, err
	}
	for _, units := range []func([]Step) [][]Step{groupWaits, singly} {
		if err := m.reduce(units(m.best.Steps[:len(m.best.Steps)-1])); err != nil {
			return m.best, err
		}
	}
	if err := m.halveEachPause(); err != nil {
		return m.best, err
	}
	return m.best, m.shortenTail()
}

type minimizer struct {
	ctx           context.Context
	runner        Runner
	report        func(Trial)
	best          *Timeline
	trials        int
	longestNeeded bool            // the longest pause could not be halved
	ran           map[string]bool // texts of the timelines that were run
}

// groupWaits groups each step with the waits directly after it.
func groupWaits(steps []Step) (units [][]Step) {
	for _, s := range steps {
		if n := len(units); s.Condition() != "" && n > 0 {
			units[n-1] = append(units[n-1], s)
			continue
		}
		units = append(units, []Step{s})
	}
	return units
}

func singly(steps []Step) (units [][]Step) {
	for _, s := range steps {
		units = append(units, []Step{s})
	}
	return units
}

// reduce is ddmin: it removes one of n parts, with growing n, until no single unit can be removed.
func (m *minimizer) reduce(units [][]Step) error {
	for n := 2; len(units) > 0; {
		n = min(n, len(units))
		smaller := false
		for part := range n {
			from, to := part*len(units)/n, (part+1)*len(units)/n
			rest := slices.Concat(units[:from], units[to:])
			candidate := m.candidate(rest)
			fails, err := m.fails(candidate)
			if err != nil {
				return err
			}
			if fails {
				units, n, smaller = remaining(rest, candidate), max(2, n-1), true
				if err := m.halveLongest(); err != nil {
					return err
				}
				units = regroup(units, m.best.Steps)
				break
			}
		}
		if !smaller && n == len(units) {
			return nil
		}
		if !smaller {
			n *= 2
		}
	}
	return nil
}

// candidate returns the best timeline with these steps only, without the steps that are then impossible.
func (m *minimizer) candidate(units [][]Step) *Timeline {
	end := m.best.Steps[len(m.best.Steps)-1]
	t := m.best.With(append(slices.Concat(units...), end))
	for {
		i, err := t.firstImpossible()
		if err == nil || t.Steps[i].Verb == End {
			return t
		}
		t.Steps = slices.Delete(t.Steps, i, i+1)
	}
}

// firstImpossible returns the index of the first impossible step, with the error of its check.
func (t *Timeline) firstImpossible() (int, error) {
	c := newChecker(t)
	for _, s := range slices.Concat(t.Given, t.Lanes) {
		if err := c.check(s); err != nil {
			return len(t.Steps) - 1, err
		}
	}
	for i, s := range t.Steps {
		if err := c.check(s); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// remaining returns the units without the steps that the candidate does not have.
func remaining(units [][]Step, candidate *Timeline) (left [][]Step) {
	next := 0
	for _, unit := range units {
		var steps []Step
		for _, s := range unit {
			if candidate.Steps[next].Equal(s) {
				steps = append(steps, s)
				next++
			}
		}
		if len(steps) > 0 {
			left = append(left, steps)
		}
	}
	return left
}

// fails runs a candidate and reports it. A candidate that was run before is not run again: it did not fail, or it is the best.
func (m *minimizer) fails(t *Timeline) (bool, error) {
	text := t.String()
	if m.ran[text] {
		return false, nil
	}
	if err := m.ctx.Err(); err != nil {
		return false, err
	}
	fails, err := m.runner.Fails(m.ctx, t)
	if err != nil {
		return false, err
	}
	if m.ran[text] = true; fails {
		m.best = t
	}
	m.trials++
	m.report(Trial{m.trials, t, fails, m.best})
	return fails, nil
}

// minTail is the shortest time from the last step to the end.
const minTail = time.Second

// shortenTail halves the time after the last step while the timeline fails.
func (m *minimizer) shortenTail() error {
	for {
		n := len(m.best.Steps)
		var last time.Duration
		if n > 1 {
			last = m.best.Steps[n-2].At
		}
		tail := ((m.best.Length() - last) / 2).Truncate(minTail)
		if tail < minTail {
			return nil
		}
		t := m.best.With(m.best.Steps)
		t.Steps[n-1].At = last + tail
		if fails, err := m.fails(t); err != nil || !fails {
			return err
		}
	}
}

// minPause is the longest pause that is not worth a trial.
const minPause = 10 * time.Second

// pause returns the time between step i-1, or the beginning, and step i.
func (t *Timeline) pause(i int) time.Duration {
	if i == 0 {
		return t.Steps[0].At
	}
	return t.Steps[i].At - t.Steps[i-1].At
}

// halve returns the timeline with the selected pauses halved, to the second; nil when none of them is longer than minPause. The time
// before the end stays.
func (t *Timeline) halve(selected func(i int) bool) *Timeline {
	shorter := t.With(t.Steps)
	var cut time.Duration
	for i := range t.Steps {
		if pause := t.pause(i); pause > minPause && t.Steps[i].Verb != End && selected(i) {
			cut += pause - (pause / 2).Truncate(time.Second)
		}
		shorter.Steps[i].At -= cut
	}
	if cut == 0 {
		return nil
	}
	return shorter
}

// halvePauses halves the selected pauses while the timeline fails, and reports whether the last trial did not fail.
func (m *minimizer) halvePauses(selected func(i int) bool) (needed bool, err error) {
	for t := m.best.halve(selected); t != nil; t = m.best.halve(selected) {
		if fails, err := m.fails(t); err != nil || !fails {
			return true, err
		}
	}
	return false, nil
}

// halveAllPauses halves all pauses together.
func (m *minimizer) halveAllPauses() error {
	_, err := m.halvePauses(func(int) bool { return true })
	return err
}

// halveEachPause halves one pause after the other.
func (m *minimizer) halveEachPause() error {
	for one := range m.best.Steps {
		if _, err := m.halvePauses(func(i int) bool { return i == one }); err != nil {
			return err
		}
	}
	return nil
}

// halveLongest halves a pause that is more than half of the timeline, because each later trial would take that time. It does nothing
// once that pause has proved necessary.
func (m *minimizer) halveLongest() (err error) {
	if !m.longestNeeded {
		m.longestNeeded, err = m.halvePauses(func(i int) bool { return m.best.pause(i) > m.best.Length()/2 })
	}
	return err
}

// regroup returns the units with the current times of their steps.
func regroup(units [][]Step, steps []Step) (now [][]Step) {
	for _, unit := range units {
		now, steps = append(now, steps[:len(unit):len(unit)]), steps[len(unit):]
	}
	return now
}
