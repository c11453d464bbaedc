package timeline

import (
	"context"
	"slices"
	"time"
)

// Runner performs a timeline and reports whether it fails in the way that the search is for. An error ends the search.
type Runner interface {
	Fails(ctx context.Context, t *Timeline) (bool, error)
}

// Trial is one candidate that was run.
type Trial struct {
	Number    int // from 1
	Candidate *Timeline
	Failed    bool      // it fails too: it is the best so far
	Best      *Timeline // the shortest so far that fails
}

// Minimize removes steps from a failing timeline while it still fails: first steps with their waits, then single steps
// (Zeller's delta debugging, ddmin). It shortens the time between steps too: of all gaps at first, of a gap that becomes
// most of the timeline at once, of each gap at last, and the time after the last step. Steps that are impossible without
// removed ones are removed with them. Without any one of the remaining steps the timeline no longer fails.
//
// Minimize does not run the given timeline, which is known to fail. It reports each trial, and returns the best timeline
// so far with the error of the runner.
func Minimize(ctx context.Context, t *Timeline, r Runner, tell func(Trial)) (*Timeline, error) {
	m := &minimizer{ctx: ctx, runner: r, tell: tell, best: t, ran: map[string]bool{t.String(): true}}
	if err := m.halveAllGaps(); err != nil {
		return m.best, err
	}
	for _, units := range []func([]Step) [][]Step{groupWaits, singly} {
		if err := m.reduce(units(m.best.Steps[:len(m.best.Steps)-1])); err != nil {
			return m.best, err
		}
	}
	if err := m.halveEachGap(); err != nil {
		return m.best, err
	}
	return m.best, m.shorten()
}

type minimizer struct {
	ctx           context.Context
	runner        Runner
	tell          func(Trial)
	best          *Timeline
	trials        int
	longestNeeded bool            // the longest gap could not be halved
	ran           map[string]bool // by text
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

// reduce is ddmin: it leaves out one part of n, of ever smaller parts, until no single unit can be left out.
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

// candidate is the best timeline with these steps only, without those that are impossible then.
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

// firstImpossible is the index of the first impossible step.
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

// remaining are the units without the steps that the candidate lacks.
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

// fails runs a candidate. A candidate that was run before does not fail, or it would be the best.
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
	m.tell(Trial{m.trials, t, fails, m.best})
	return fails, nil
}

// minTail is the least time from the last step to the end.
const minTail = time.Second

// shorten halves the time after the last step as long as the timeline fails.
func (m *minimizer) shorten() error {
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

// minGap is the least time between steps that is worth a trial.
const minGap = 10 * time.Second

// gap is the time from the step before, or from the beginning.
func (t *Timeline) gap(i int) time.Duration {
	if i == 0 {
		return t.Steps[0].At
	}
	return t.Steps[i].At - t.Steps[i-1].At
}

// halve is the timeline with some gaps halved, to the second; nil when none of them is worth a trial. The time before
// the end stays.
func (t *Timeline) halve(some func(i int) bool) *Timeline {
	shorter := t.With(t.Steps)
	var cut time.Duration
	for i := range t.Steps {
		if gap := t.gap(i); gap > minGap && t.Steps[i].Verb != End && some(i) {
			cut += gap - (gap / 2).Truncate(time.Second)
		}
		shorter.Steps[i].At -= cut
	}
	if cut == 0 {
		return nil
	}
	return shorter
}

// halveGaps halves gaps as long as the timeline fails, and reports whether a trial ended that.
func (m *minimizer) halveGaps(some func(i int) bool) (needed bool, err error) {
	for t := m.best.halve(some); t != nil; t = m.best.halve(some) {
		if fails, err := m.fails(t); err != nil || !fails {
			return true, err
		}
	}
	return false, nil
}

// halveAllGaps halves all gaps together.
func (m *minimizer) halveAllGaps() error {
	_, err := m.halveGaps(func(int) bool { return true })
	return err
}

// halveEachGap halves one gap after the other.
func (m *minimizer) halveEachGap() error {
	for one := range m.best.Steps {
		if _, err := m.halveGaps(func(i int) bool { return i == one }); err != nil {
			return err
		}
	}
	return nil
}

// halveLongest halves a gap that is more than half of the timeline, because each later trial would take that time. After
// one failed attempt it does nothing.
func (m *minimizer) halveLongest() (err error) {
	if !m.longestNeeded {
		m.longestNeeded, err = m.halveGaps(func(i int) bool { return m.best.gap(i) > m.best.Length()/2 })
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
