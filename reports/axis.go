package reports

import (
	"math"
	"strconv"
	"time"
)

// The drawing area in user units; the page scales it to the width of the window.
const (
	drawingWidth = 1200
	plotLeft     = 190
	plotRight    = 24
	plotWidth    = drawingWidth - plotLeft - plotRight
	mostBuckets  = 1000 // more could not be told apart, and would make the page heavy
)

// axis maps the time of a run to the drawing, and cuts it into buckets.
type axis struct {
	from, to time.Duration
	step     time.Duration // width of a bucket
	buckets  int
}

// steps are the widths that people can read off a time line.
var steps = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// newAxis covers a span of time with the finest buckets, no finer than least, that are not too many. It begins and
// ends on whole seconds.
func newAxis(from, to, least time.Duration, most int) axis {
	to = max(to, from+time.Second)
	step := stepFor(to-from, least, most)
	whole := max(step, time.Second)
	from = floorTo(from, whole)
	n := int((to-from+whole-1)/whole) * int(whole/step)
	return axis{from: from, to: from + time.Duration(n)*step, step: step, buckets: n}
}

// floorTo is the last multiple of a step that is not after an instant; the instant may be negative.
func floorTo(at, step time.Duration) time.Duration {
	rest := at % step
	if rest < 0 {
		rest += step
	}
	return at - rest
}

func stepFor(span, least time.Duration, most int) time.Duration {
	for _, step := range steps {
		if step >= least && span/step < time.Duration(most) {
			return step
		}
	}
	last := steps[len(steps)-1]
	return (span/last/time.Duration(most) + 1) * last
}

// bucket is the number of the bucket of an instant; instants outside fall into the first and the last.
func (x axis) bucket(at time.Duration) int {
	return min(max(int((at-x.from)/x.step), 0), x.buckets-1)
}

// x is the place of an instant in the drawing.
func (x axis) x(at time.Duration) float64 {
	at = min(max(at, x.from), x.to)
	return tenth(plotLeft + float64(at-x.from)/float64(x.to-x.from)*plotWidth)
}

// start is the instant at which a bucket begins.
func (x axis) start(bucket int) time.Duration { return x.from + time.Duration(bucket)*x.step }

// tick is a labelled instant of the axis.
type tick struct {
	X    float64
	Text string
}

func (x axis) ticks() []tick {
	step := stepFor(x.to-x.from, time.Second, 13)
	var all []tick
	for at := -floorTo(-x.from, step); at <= x.to; at += step {
		all = append(all, tick{x.x(at), clockText(at)})
	}
	return all
}

// clockText writes an instant as seconds, or as hours and minutes when it is late in a long run.
func clockText(at time.Duration) string {
	if at < 10*time.Minute {
		return strconv.Itoa(int(at/time.Second)) + " s"
	}
	h, m, s := int(at.Hours()), int(at.Minutes())%60, int(at.Seconds())%60
	text := strconv.Itoa(h) + ":" + two(m)
	if s != 0 {
		text += ":" + two(s)
	}
	return text
}

func two(n int) string { return strconv.Itoa(n/10) + strconv.Itoa(n%10) }

// tenth rounds a coordinate, so that pages stay small and equal everywhere.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }
