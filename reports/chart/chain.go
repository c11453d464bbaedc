package chart

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Chain is the drawing of one outage: the states around it on one axis, and the numbered edges of its cause.
type Chain struct {
	*Timeline
	Edges []Edge
}

// Edge is a line between two points of the rows, with its number at the first one.
type Edge struct {
	Number int
	Path   string
	X, Y   float64 // centre of the number
	Text   string
}

// mostAlike is how many endpoints, and how many pods, a chain shows.
const mostAlike = 4

// NewChain draws an outage of a lane. states are those of the whole run, from and to the shown time.
func NewChain(a *analysis.Analysis, o *analysis.Outage, r analysis.OutageReport, states []analysis.StateRow, from, to time.Duration) *Chain {
	for _, e := range r.Edges {
		from = min(from, time.Duration(e.From.At*1e9)-500*time.Millisecond)
	}
	c := &Chain{Timeline: &Timeline{Axis: NewAxis(max(0, from), to, 100*time.Millisecond, 200), Height: 8}}
	c.Ticks = c.Axis.Ticks()
	c.addCause(r)
	own := a.StatesOf(o, states)
	for _, kind := range analysis.StateKinds() {
		switch kind {
		case analysis.StateLog:
			c.addLog(a, r.Node)
		case analysis.StateAttempts:
			c.addAttempts(a, o, r)
		default:
			c.addStatesOf(kind, own, r.Edges)
		}
	}
	for _, e := range r.Edges {
		c.addEdge(e)
	}
	return c
}

// addCause adds a row for the events that are no state of an object, such as the exit of a proxy.
func (c *Chain) addCause(r analysis.OutageReport) {
	var shapes []Shape
	for _, e := range r.Edges {
		if e.From.State == analysis.StateEvent {
			shapes = append(shapes, Shape{X: units.Tenth(c.Axis.X(time.Duration(e.From.At*1e9)) - 1.5), Y: 2, Width: 3, Height: EventHeight - 4, Class: "mark", Text: e.From.Text})
		}
	}
	if len(shapes) > 0 {
		c.Add(Row{Name: "cause", Kind: analysis.StateEvent, Shapes: shapes}, EventHeight)
	}
}

// addStatesOf adds the rows of a kind. Those that an edge is about come before the others, then those that change in the shown time.
func (c *Chain) addStatesOf(kind string, states []analysis.StateRow, edges []analysis.EdgeReport) {
	rank := func(r analysis.StateRow) int {
		if slices.ContainsFunc(edges, func(e analysis.EdgeReport) bool {
			return e.From.State == kind && strings.Contains(e.From.Text, r.Name)
		}) {
			return 0
		}
		if slices.ContainsFunc(r.Spans, func(s analysis.StateSpan) bool { return s.From > c.Axis.From && s.From < c.Axis.To }) {
			return 1
		}
		return 2
	}
	rows := slices.DeleteFunc(slices.Clone(states), func(r analysis.StateRow) bool {
		return r.Kind != kind || !slices.ContainsFunc(r.Spans, func(s analysis.StateSpan) bool { return s.From < c.Axis.To && s.To > c.Axis.From })
	})
	slices.SortStableFunc(rows, func(x, y analysis.StateRow) int { return rank(x) - rank(y) })
	for _, r := range rows[:min(len(rows), mostAlike)] {
		c.addStateRow(r, kind)
	}
}

func (c *Chain) addLog(a *analysis.Analysis, node string) {
	var lines []record.Event
	for _, e := range a.Events {
		if e.Kind() == record.KindLog && e.Node == node && e.At >= c.Axis.From && e.At <= c.Axis.To {
			lines = append(lines, e)
		}
	}
	if len(lines) > 0 {
		c.Add(Row{Name: "log of the proxy", Kind: analysis.StateLog, Shapes: c.marks(lines, "log")}, EventHeight)
	}
}

func (c *Chain) addAttempts(a *analysis.Analysis, o *analysis.Outage, r analysis.OutageReport) {
	l, n := o.Lane, NewTally(c.Axis.Buckets)
	for i := l.RecordAt(c.Axis.From); i < len(l.Records) && l.Records[i].Start() < c.Axis.To; i++ {
		if s := &l.Records[i]; a.Nodes[s.Node] == r.Node && s.Intended >= c.Axis.From {
			n.Add(c.Axis.Bucket(s.Intended), s)
		}
	}
	row := Row{Name: l.Name + " over " + analysis.NodeText(r.Node), Detail: analysis.ClassesText(r.Classes), Kind: analysis.StateAttempts}
	row.Areas = AreasOf(c.PathShapes(n, l.DrawnGap()), float64(c.Height))
	c.Add(row, RowHeight)
}

// addEdge draws an edge between the rows of its ends.
func (c *Chain) addEdge(e analysis.EdgeReport) {
	x1, y1 := c.place(e.From)
	x2, y2 := c.place(e.To)
	bend := 14.0
	if x2-x1 > 40 {
		bend = 0
	}
	middle := fmt.Sprintf("%v %v", units.Tenth((x1+x2)/2-bend), units.Tenth((y1+y2)/2))
	c.Edges = append(c.Edges, Edge{Number: e.Number, Path: fmt.Sprintf("M%v %vQ%s %v %v", x1, y1, middle, x2, y2), X: units.Tenth(x1 - 9), Y: y1,
		Text: fmt.Sprintf("%d: %s at %s, then %s at %s", e.Number, e.From.Text, units.At(e.From.At), e.To.Text, units.At(e.To.At))})
}

// place is the position of a point: on the row of the object that its text names, or else on the first row of its kind.
func (c *Chain) place(p analysis.PointReport) (x, y float64) {
	found := -1
	for i, r := range c.Rows {
		if r.Kind != p.State {
			continue
		}
		name := r.Name[strings.LastIndex(r.Name, " ")+1:]
		if found < 0 || strings.Contains(p.Text, name) && !strings.Contains(p.Text, c.Rows[found].Name[strings.LastIndex(c.Rows[found].Name, " ")+1:]) {
			found = i
		}
	}
	y = float64(c.Height) - 2
	if found >= 0 {
		y = float64(c.Rows[found].Y + c.Rows[found].Height/2)
	}
	return c.Axis.X(time.Duration(p.At * 1e9)), y
}
