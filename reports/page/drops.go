package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports/chart"
)

// lossChart is the first drawing: connections dropped and delayed, of those attempted. In a long run it has shares.
type lossChart struct {
	Shapes  []chart.Shape
	Outline string // of the attempts
	Ticks   []chart.Tick
	Lines   []chart.Tick // X is the height of a line here
	Title   string
	Axis    string // what the vertical axis shows
	Lost    bool
	Height  int
	Base    int
	Top     int
	Bands   []chart.Shape
	Numbers []number
}

// number marks the beginning of a step of the chain.
type number struct {
	Number int
	X      float64
	Text   string
}

const (
	chartHeight = 172
	chartBase   = 126 // bottom of the bars
	chartTop    = 26
	numberApart = 17 // of the marks
)

// newLossChart draws the losses on the axis of the time line, and marks the steps of the longest outage.
func newLossChart(a *analysis.Analysis, like chart.Axis, worst *analysis.LaneOutage) lossChart {
	x := chart.Axis{From: like.From, To: like.To, Step: max(like.Step, time.Second)}
	x.Buckets = int((x.To - x.From + x.Step - 1) / x.Step)
	c := lossChart{Ticks: x.Ticks(), Height: chartHeight, Base: chartBase, Top: chartTop}
	n := chart.NewTally(x.Buckets)
	rate := 0.0
	for _, l := range a.Measured() {
		rate += l.Rate
		for i := range l.Records {
			n.Add(x.Bucket(l.Records[i].Intended), &l.Records[i])
		}
	}
	if x.Step == time.Second {
		c.perSecond(x, n, rate)
	} else {
		c.shares(x, n)
	}
	t := chart.Timeline{Axis: x, Height: chartBase}
	c.Bands = t.Phases(a)
	if worst != nil {
		c.mark(x, worst.Edges)
	}
	return c
}

// perSecond draws counts. The axis ends at the attempted rate, so that the height of a bar is its share of the attempts.
func (c *lossChart) perSecond(x chart.Axis, n *chart.Tally, rate float64) {
	most := int(math.Ceil(rate))
	for _, attempts := range n.Attempts {
		most = max(most, attempts)
	}
	most = max(most, 1)
	c.Title, c.Axis = "Connections dropped or delayed per second", "connections per second"
	c.lines(units.Thousands(most), units.Thousands(most/2))
	height := func(_, k int) float64 { return float64(k) / float64(most) * (chartBase - chartTop) }
	var b strings.Builder
	for i, attempts := range n.Attempts {
		step := "M%v %vV%vH%v"
		if i > 0 {
			step = "L%v %vV%vH%v"
		}
		at := units.Tenth(chartBase - height(i, attempts))
		fmt.Fprintf(&b, step, x.X(x.Start(i)), at, at, x.X(x.Start(i+1)))
	}
	c.Outline = b.String()
	c.bars(x, n, height, func(i, k int, class string) string {
		return fmt.Sprintf("%s: %s of %s %s", units.At(x.Start(i).Seconds()), units.Thousands(k), units.Thousands(n.Attempts[i]), class)
	})
}

// shares draws the share of failures in each bin of a long run.
func (c *lossChart) shares(x chart.Axis, n *chart.Tally) {
	c.Title, c.Axis = "Share of connections dropped or delayed, in bins of "+units.MsText(units.Millis(x.Step)), "share of connections"
	c.lines("100 %", "50 %")
	share := func(i, k int) float64 { return float64(k) / float64(max(1, n.Attempts[i])) }
	height := func(i, k int) float64 { return share(i, k) * (chartBase - chartTop) }
	c.bars(x, n, height, func(i, k int, class string) string {
		return fmt.Sprintf("from %s on: %.2f %% %s, %s of %s", units.At(x.Start(i).Seconds()), share(i, k)*100, class, units.Thousands(k), units.Thousands(n.Attempts[i]))
	})
}

func (c *lossChart) lines(top, middle string) {
	c.Lines = []chart.Tick{{X: chartTop, Text: top}, {X: (chartTop + chartBase) / 2, Text: middle}}
}

// bars draws the losses of each bucket i. height and text are those of k connections.
func (c *lossChart) bars(x chart.Axis, n *chart.Tally, height func(i, k int) float64, text func(i, k int, class string) string) {
	c.Shapes = n.LossBars(x, chart.Bars{Base: chartBase, Apart: 0.5, Height: height, Text: text})
	c.Lost = len(c.Shapes) > 0
}

// mark numbers the beginnings of the steps of a chain. Marks that would meet stand beside each other.
func (c *lossChart) mark(x chart.Axis, edges []analysis.EdgeReport) {
	last := math.Inf(-1)
	for _, e := range edges {
		at := max(x.X(time.Duration(e.From.At*1e9)), last+numberApart)
		c.Numbers = append(c.Numbers, number{e.Number, at, fmt.Sprintf("%d: %s at %s", e.Number, e.From.Text, units.At(e.From.At))})
		last = at
	}
}
