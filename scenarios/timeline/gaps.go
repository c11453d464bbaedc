package timeline

import "time"

// worth is how long a gap between steps is that a trial is made for.
const worth = 10 * time.Second

// gap is the time before a step, since the one before it or the beginning.
func (t *Timeline) gap(i int) time.Duration {
	if i == 0 {
		return t.Steps[0].At
	}
	return t.Steps[i].At - t.Steps[i-1].At
}

// halve is the timeline with some gaps halved, to the second; what comes later comes earlier by as much. It is nil when none of them is
// worth it. The time before the end is none of them.
func (t *Timeline) halve(some func(i int) bool) *Timeline {
	shorter := t.With(t.Steps)
	var cut time.Duration
	for i := range t.Steps {
		if gap := t.gap(i); gap > worth && t.Steps[i].Verb != End && some(i) {
			cut += gap - (gap / 2).Truncate(time.Second)
		}
		shorter.Steps[i].At -= cut
	}
	if cut == 0 {
		return nil
	}
	return shorter
}

// halves halves gaps as long as the timeline fails, and reports whether it stopped because it did not fail any more.
func (m *minimizer) halves(some func(i int) bool) (needed bool, err error) {
	for t := m.best.halve(some); t != nil; t = m.best.halve(some) {
		if fails, err := m.fails(t); err != nil || !fails {
			return true, err
		}
	}
	return false, nil
}

// quicken halves all gaps together.
func (m *minimizer) quicken() error {
	_, err := m.halves(func(int) bool { return true })
	return err
}

// closeGaps halves one gap after the other.
func (m *minimizer) closeGaps() error {
	for one := range m.best.Steps {
		if _, err := m.halves(func(i int) bool { return i == one }); err != nil {
			return err
		}
	}
	return nil
}

// closeLongest halves a gap as long as it is more than half of the timeline, which steps that were taken out have left: each later trial
// would take as long. Once that was in vain it does nothing any more.
func (m *minimizer) closeLongest() (err error) {
	if !m.stiff {
		m.stiff, err = m.halves(func(i int) bool { return m.best.gap(i) > m.best.Length()/2 })
	}
	return err
}

// regrouped are the units with the steps as they are now: the same ones at other times.
func regrouped(units [][]Step, steps []Step) (now [][]Step) {
	for _, unit := range units {
		now, steps = append(now, steps[:len(unit):len(unit)]), steps[len(unit):]
	}
	return now
}
