// Package chart computes the time axis and the rows of the drawings that the page, the comparison and the text lanes share.
package chart

import (
	"time"

	"github.com/hitless/hitless/internal/units"
)

// The drawing area in user units; the page scales it to the width of the window.
const (
	Width      = 1200
	PlotLeft   = 190
	plotRight  = 24
	PlotWidth  = Width - PlotLeft - plotRight
	MaxBuckets = 1000 // more could not be seen, and would make the page large
)

// Axis maps the time of a run to the drawing, and cuts it into buckets.
type Axis struct {
	From, To time.Duration
	Step     time.Duration // width of a bucket
	Buckets  int
}

// steps are the widths that are easy to read on a time axis.
var steps = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// NewAxis covers a span of time with at most MaxBuckets buckets, each at least as wide as least. It begins and ends on whole
// seconds.
func NewAxis(from, to, least time.Duration, most int) Axis {
	to = max(to, from+time.Second)
	step := StepFor(to-from, least, most)
	whole := max(step, time.Second)
	from = FloorTo(from, whole)
	n := int((to-from+whole-1)/whole) * int(whole/step)
	return Axis{From: from, To: from + time.Duration(n)*step, Step: step, Buckets: n}
}

// FloorTo rounds an instant down to a multiple of a step. The instant may be negative.
func FloorTo(at, step time.Duration) time.Duration {
	rest := at % step
	if rest < 0 {
		rest += step
	}
	return at - rest
}

func StepFor(span, least time.Duration, most int) time.Duration {
	for _, step := range steps {
		if step >= least && span/step < time.Duration(most) {
			return step
		}
	}
	last := steps[len(steps)-1]
	return (span/last/time.Duration(most) + 1) * last
}

// Bucket is the number of an instant's bucket. Instants outside of the axis belong to the first or the last one.
func (x Axis) Bucket(at time.Duration) int {
	return min(max(int((at-x.From)/x.Step), 0), x.Buckets-1)
}

// X is the horizontal position of an instant in the drawing.
func (x Axis) X(at time.Duration) float64 {
	at = min(max(at, x.From), x.To)
	return units.Tenth(PlotLeft + float64(at-x.From)/float64(x.To-x.From)*PlotWidth)
}

// Start is the instant at which a bucket begins.
func (x Axis) Start(bucket int) time.Duration { return x.From + time.Duration(bucket)*x.Step }

// Tick is a labelled instant of the axis.
type Tick struct {
	X    float64
	Text string
}

func (x Axis) Ticks() []Tick {
	step := StepFor(x.To-x.From, time.Second, 13)
	var all []Tick
	for at := -FloorTo(-x.From, step); at <= x.To; at += step {
		all = append(all, Tick{x.X(at), units.Clock(at)})
	}
	return all
}
