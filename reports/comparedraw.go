package reports

import (
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// course is what a run contributes to the drawing of a comparison. Its zero is the beginning of its scenario: what comes
// before takes as long as the subject's start, and says nothing about the scenario.
type course struct {
	from, to time.Duration
	counts   map[time.Duration]*courseCount // by second
	steps    []span
	events   []record.Event
	cut      bool // the scenario never began; zero is the run's end
}

type courseCount struct{ attempts, dropped, delayed int }

// courseOf takes from an analysis what is drawn of it.
func (a *analysis) courseOf() *course {
	zero, c := a.end, &course{counts: map[time.Duration]*courseCount{}}
	if p, begun := a.phase("scenario"); begun {
		zero = p.from
	} else {
		c.cut = true
	}
	c.from, c.to = 0, a.end-zero
	for _, l := range a.measured() {
		for i := range l.records {
			r := &l.records[i]
			at := floorTo(r.intended-zero, time.Second)
			c.from = min(c.from, at)
			n := c.counts[at]
			if n == nil {
				n = &courseCount{}
				c.counts[at] = n
			}
			n.attempts++
			switch {
			case r.class == record.Delayed:
				n.delayed++
			case r.class.Dropped():
				n.dropped++
			}
		}
	}
	for _, e := range a.events {
		if e.At -= zero; drawn(e) && e.At >= c.from {
			c.events = append(c.events, e)
		}
	}
	steps := slices.DeleteFunc(slices.Clone(c.events), func(e record.Event) bool { return e.Kind() != record.KindStep || e.At < 0 })
	c.steps, _ = spans(steps, c.to)
	return c
}

// comparedCourse is a run of a comparison with its course.
type comparedCourse struct {
	ComparedRun
	*course
}

// comparedAxis holds all runs.
func comparedAxis(subjects [][]comparedCourse) axis {
	var from, to time.Duration
	for _, runs := range subjects {
		for _, r := range runs {
			from, to = min(from, r.from), max(to, r.to)
		}
	}
	return newAxis(from, to, time.Second, mostBuckets)
}

const (
	mostComparedRuns = 40
	stripHeight      = 3
)

// comparedTimeline draws the runs below each other: for each subject its steps, then a row for each of its runs, with the
// lost connections of all runs on one scale.
func (c *Comparison) comparedTimeline(subjects [][]comparedCourse) (t *timeline, most int) {
	t = &timeline{axis: comparedAxis(subjects), Height: headHeight}
	t.Ticks = t.axis.ticks()
	counts, drawn := make([][]*tally, len(subjects)), 0
	for i, runs := range subjects {
		for _, r := range runs {
			n := t.tallyOf(r.course)
			for k := range n.dropped {
				most = max(most, n.dropped[k]+n.delayed[k])
			}
			counts[i] = append(counts[i], n)
		}
	}
	for i, runs := range subjects {
		name := c.Subjects[i].Subject
		t.addSteps(name, runs[0])
		for k, r := range runs {
			if drawn == mostComparedRuns {
				t.More = fmt.Sprintf("The first %d runs are drawn; the table below has all of them.", mostComparedRuns)
				break
			}
			drawn++
			t.addCourse(name, r, counts[i][k], most)
		}
	}
	begun := t.axis.x(0)
	t.Bands = []shape{{X: plotLeft, Width: tenth(begun - plotLeft), Height: float64(t.Height), Class: "phase-1", Label: fitting("before", begun-plotLeft)},
		{X: begun, Width: tenth(t.axis.x(t.axis.to) - begun), Height: float64(t.Height), Class: "phase-0", Label: "from the beginning of the scenario"}}
	return t, most
}

func (t *timeline) tallyOf(c *course) *tally {
	n := newTally(t.axis.buckets)
	for at, count := range c.counts {
		i := t.axis.bucket(at)
		n.attempts[i] += count.attempts
		n.dropped[i] += count.dropped
		n.delayed[i] += count.delayed
	}
	return n
}

// addSteps adds the name of a subject, and below it what was done in the first of its runs.
func (t *timeline) addSteps(subject string, r comparedCourse) {
	t.add(timelineRow{Name: subject, Kind: "subject", Node: subject}, eventHeight)
	row := timelineRow{Name: fmt.Sprintf("steps, seed %d", r.Seed), Kind: "events", Node: subject}
	for _, s := range r.steps {
		x := t.axis.x(s.from)
		width := max(2, tenth(t.axis.x(s.to)-x))
		row.Shapes = appendUnhidden(row.Shapes, shape{X: x, Y: 2, Width: width, Height: eventHeight - 4, Class: "step bar", Text: s.text, Label: fitting(s.name, width)})
	}
	t.add(row, eventHeight)
}

func (t *timeline) addCourse(subject string, r comparedCourse, n *tally, most int) {
	row := timelineRow{Name: fmt.Sprintf("seed %d", r.Seed), Detail: fmt.Sprintf("%s, %s dropped", r.Verdict, thousands(r.Dropped)), Kind: "run", Node: subject,
		Numbers: map[string][]int{"attempts": n.attempts, "dropped": n.dropped, "delayed": n.delayed}}
	if r.cut {
		row.Detail = string(r.Verdict) + ", its scenario never began"
	}
	const height = rowHeight - stripHeight - 2
	var bars []shape
	for i := range n.dropped {
		x := t.axis.x(t.axis.start(i))
		s := shape{X: x, Y: height, Width: max(1.5, tenth(t.axis.x(t.axis.start(i+1))-x))}
		for _, part := range [...]struct {
			class string
			n     int
		}{{"dropped", n.dropped[i]}, {"delayed", n.delayed[i]}} {
			if part.n == 0 {
				continue
			}
			s.Class, s.Height = part.class, tenth(min(s.Y, max(2, float64(part.n)/float64(most)*height)))
			s.Y = tenth(s.Y - s.Height)
			bars = append(bars, s)
		}
	}
	begin := t.axis.x(r.from)
	row.Shapes = append(row.Shapes, shape{X: begin, Y: height, Width: max(1, tenth(t.axis.x(r.to)-begin)), Height: 1, Class: "measured", Text: "measured"})
	for _, s := range r.steps {
		x := t.axis.x(s.from)
		bars = append(bars, shape{X: x, Y: height + 2, Width: max(2, tenth(t.axis.x(s.to)-x)), Height: stripHeight, Class: "step"})
	}
	row.Areas = areasOf(bars, float64(t.Height))
	t.add(row, rowHeight)
}

// drawn reports whether a comparison shows an event.
func drawn(e record.Event) bool {
	switch body := e.Body.(type) {
	case record.Step, record.Rollout, record.Proxy:
		return true
	case record.Fault:
		return !body.Control
	}
	return false
}
