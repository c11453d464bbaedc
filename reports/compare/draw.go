package compare

import (
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// course is the part of a run that a comparison draws. Its time zero is the begin of the scenario, because the time before depends
// on how long the subject takes to start.
type course struct {
	from, to time.Duration
	counts   map[time.Duration]*courseCount // by second
	steps    []chart.Span
	events   []record.Event
	cut      bool // the scenario never began; zero is the run's end
}

type courseCount struct{ attempts, dropped, delayed int }

// courseOf returns the course of an analysis.
func courseOf(a *analysis.Analysis) *course {
	zero, c := a.End, &course{counts: map[time.Duration]*courseCount{}}
	if p, begun := a.Phase("scenario"); begun {
		zero = p.From
	} else {
		c.cut = true
	}
	c.from, c.to = 0, a.End-zero
	for _, l := range a.Measured() {
		for i := range l.Records {
			r := &l.Records[i]
			at := chart.FloorTo(r.Intended-zero, time.Second)
			c.from = min(c.from, at)
			n := c.counts[at]
			if n == nil {
				n = &courseCount{}
				c.counts[at] = n
			}
			n.attempts += int(r.N) // a bucket of a thinned record has many
			switch {
			case r.Class == record.Delayed:
				n.delayed++
			case r.Class.Dropped():
				n.dropped++
			}
		}
	}
	for _, e := range a.Events {
		if e.At -= zero; drawn(e) && e.At >= c.from {
			c.events = append(c.events, e)
		}
	}
	steps := slices.DeleteFunc(slices.Clone(c.events), func(e record.Event) bool { return e.Kind() != record.KindStep || e.At < 0 })
	c.steps, _ = chart.Spans(steps, c.to)
	return c
}

// runCourse is a run of a comparison with its course.
type runCourse struct {
	Run
	*course
}

// comparedAxis returns an axis that covers all runs.
func comparedAxis(subjects [][]runCourse) chart.Axis {
	var from, to time.Duration
	for _, runs := range subjects {
		for _, r := range runs {
			from, to = min(from, r.from), max(to, r.to)
		}
	}
	return chart.NewAxis(from, to, time.Second, chart.MaxBuckets)
}

const (
	mostComparedRuns = 40
	stripHeight      = 3
)

// comparedTimeline draws the steps of each subject, then a row for each of its runs, and lists what the rows show. The height of a row is
// the most attempts in one bucket of any run, so that the height of a loss is its share.
func (c *Comparison) comparedTimeline(subjects [][]runCourse) (t *chart.Timeline, lost []stretch, most int) {
	t = &chart.Timeline{Axis: comparedAxis(subjects), Height: chart.HeadHeight}
	t.Ticks = t.Axis.Ticks()
	counts, all := make([][]*chart.Tally, len(subjects)), 0
	for i, runs := range subjects {
		all += len(runs)
		for _, r := range runs {
			n := tallyOf(t, r.course)
			most = max(most, slices.Max(n.Attempts))
			counts[i] = append(counts[i], n)
			lost = append(lost, stretchesOf(c.Subjects[i].Subject, r.Seed, t.Axis, n)...)
		}
	}
	for i, n := range firstRuns(subjects) {
		name := c.Subjects[i].Subject
		addSteps(t, name, subjects[i][0])
		for k, r := range subjects[i][:n] {
			addCourse(t, name, r, counts[i][k], most)
		}
	}
	if all > mostComparedRuns {
		t.More = fmt.Sprintf("%d of %d runs are drawn, the first of each subject; the table below has all of them.", mostComparedRuns, all)
	}
	begun := t.Axis.X(0)
	t.Bands = []chart.Shape{{X: chart.PlotLeft, Width: units.Tenth(begun - chart.PlotLeft), Height: float64(t.Height), Class: "phase-1", Label: chart.Fitting("before", begun-chart.PlotLeft)},
		{X: begun, Width: units.Tenth(t.Axis.X(t.Axis.To) - begun), Height: float64(t.Height), Class: "phase-0", Label: "from the beginning of the scenario"}}
	return t, lost, most
}

// firstRuns is how many runs of each subject are drawn: as many of each as there is room for.
func firstRuns(subjects [][]runCourse) []int {
	drawn, left := make([]int, len(subjects)), mostComparedRuns
	for k := 0; k < mostComparedRuns; k++ {
		for i, runs := range subjects {
			if k < len(runs) && left > 0 {
				drawn[i]++
				left--
			}
		}
	}
	return drawn
}

func tallyOf(t *chart.Timeline, c *course) *chart.Tally {
	n := chart.NewTally(t.Axis.Buckets)
	for at, count := range c.counts {
		i := t.Axis.Bucket(at)
		n.Attempts[i] += count.attempts
		n.Dropped[i] += count.dropped
		n.Delayed[i] += count.delayed
	}
	return n
}

// addSteps adds the name of a subject, and below it the steps of the first of its runs.
func addSteps(t *chart.Timeline, subject string, r runCourse) {
	t.Add(chart.Row{Name: subject, Kind: "subject", Node: subject}, chart.EventHeight)
	row := chart.Row{Name: fmt.Sprintf("steps, seed %d", r.Seed), Kind: "events", Node: subject}
	for _, s := range r.steps {
		x := t.Axis.X(s.From)
		width := max(2, units.Tenth(t.Axis.X(s.To)-x))
		row.Shapes = chart.AppendUnhidden(row.Shapes, chart.Shape{X: x, Y: 2, Width: width, Height: chart.EventHeight - 4, Class: "step bar", Text: s.Text, Label: chart.Fitting(s.Name, width)})
	}
	t.Add(row, chart.EventHeight)
}

func addCourse(t *chart.Timeline, subject string, r runCourse, n *chart.Tally, most int) {
	row := chart.Row{Name: fmt.Sprintf("seed %d", r.Seed), Detail: fmt.Sprintf("%s, %s dropped", r.Verdict, units.Thousands(r.Dropped)), Kind: "run", Node: subject,
		Numbers: map[string][]int{"attempts": n.Attempts, "dropped": n.Dropped, "delayed": n.Delayed}}
	if r.cut {
		row.Detail = string(r.Verdict) + ", its scenario never began"
	}
	const height = chart.RowHeight - stripHeight - 2
	bars := n.LossBars(t.Axis, chart.Bars{Base: height, Height: func(_, k int) float64 { return float64(k) / float64(most) * height }})
	begin := t.Axis.X(r.from)
	row.Shapes = append(row.Shapes, chart.Shape{X: begin, Y: height, Width: max(1, units.Tenth(t.Axis.X(r.to)-begin)), Height: 1, Class: "measured", Text: "measured"})
	for _, s := range r.steps {
		x := t.Axis.X(s.From)
		bars = append(bars, chart.Shape{X: x, Y: height + 2, Width: max(2, units.Tenth(t.Axis.X(s.To)-x)), Height: stripHeight, Class: "step"})
	}
	row.Areas = append(chart.AreasOf(bars, float64(t.Height)), attempted(t.Axis, n, most, height, t.Height))
	t.Add(row, chart.RowHeight)
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
