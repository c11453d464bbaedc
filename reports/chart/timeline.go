package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Timeline is the drawing of a run: events on top, then a row for each path and for each backend.
type Timeline struct {
	Axis   Axis
	Height int
	Ticks  []Tick
	Bands  []Shape // the phases
	Rows   []Row
	More   string              // says which rows were left out
	States []analysis.StateRow // of the whole run
}

// Row is one row of the drawing, with its numbers by bucket for the linked cursor.
type Row struct {
	Name, Detail string
	Kind         string // events, path or backend
	Node         string // empty for none or several nodes
	Y, Height    int
	Shapes       []Shape
	Areas        []Area
	Numbers      map[string][]int
}

// Shape is a rectangle of the drawing.
type Shape struct {
	X, Y, Width, Height float64
	Class, Text         string
	Label               string // drawn inside if it fits
	hidden              int    // number of other shapes whose text it has, because they would hide each other
}

// Area joins many rectangles in one outline, which makes the page smaller.
type Area struct{ Class, Outline string }

// AreasOf joins the rectangles of each class, in the order of each class's first rectangle. top is the top of their row. Positions are
// relative to the previous rectangle, in tenths, so that rounding errors do not add up.
func AreasOf(shapes []Shape, top float64) []Area {
	type outline struct {
		strings.Builder
		x, y int // where the last rectangle began
	}
	var order []string
	byClass := map[string]*outline{}
	tenths := func(v float64) int { return int(math.Round(v * 10)) }
	for _, s := range shapes {
		o := byClass[s.Class]
		if o == nil {
			o = &outline{}
			byClass[s.Class], order = o, append(order, s.Class)
		}
		x, y := tenths(s.X), tenths(s.Y+top)
		fmt.Fprintf(o, "m%v %vh%vv%vh-%vz", float64(x-o.x)/10, float64(y-o.y)/10, s.Width, s.Height, s.Width)
		o.x, o.y = x, y
	}
	var all []Area
	for _, class := range order {
		all = append(all, Area{class, byClass[class].String()})
	}
	return all
}

const (
	HeadHeight  = 34
	EventHeight = 18
	RowHeight   = 28
	rowGap      = 4
)

func NewTimeline(a *analysis.Analysis) *Timeline {
	from, to := a.End, a.End
	for _, l := range a.Lanes {
		if len(l.Records) > 0 {
			from = min(from, l.Begin)
		}
	}
	if len(a.Phases) > 0 {
		from = min(from, a.Phases[0].From)
	}
	t := &Timeline{Axis: NewAxis(from, to, 100*time.Millisecond, MaxBuckets), Height: HeadHeight}
	t.Ticks, t.States = t.Axis.Ticks(), a.States()
	t.addEvents(a)
	nodes := withNodes(a)
	for _, l := range a.Measured() {
		t.addPaths(a, l, nodes[l.Frontend()])
	}
	t.addBackends(a)
	t.Bands = t.Phases(a)
	return t
}

func (t *Timeline) Add(r Row, height int) {
	r.Y, r.Height = t.Height, height
	for i := range r.Shapes {
		r.Shapes[i].Y += float64(t.Height)
	}
	t.Rows = append(t.Rows, r)
	t.Height += height + rowGap
}

// Phases returns the phases as bands in the background.
func (t *Timeline) Phases(a *analysis.Analysis) []Shape {
	var bands []Shape
	for i, p := range a.Phases {
		if p.To > p.From {
			x := t.Axis.X(p.From)
			width := units.Tenth(t.Axis.X(p.To) - x)
			bands = append(bands, Shape{X: x, Width: width, Height: float64(t.Height), Class: "phase-" + strconv.Itoa(i%2), Label: Fitting(p.Name, width)})
		}
	}
	return bands
}

// Tally counts attempts by bucket.
type Tally struct{ Attempts, Delayed, Dropped, Probe []int }

func NewTally(n int) *Tally {
	return &Tally{make([]int, n), make([]int, n), make([]int, n), make([]int, n)}
}

func (t *Tally) Add(bucket int, r *analysis.Sample) {
	n := int(r.N)
	t.Attempts[bucket] += n
	switch {
	case r.Class == record.Delayed:
		t.Delayed[bucket] += n
	case r.Class == record.Probe:
		t.Probe[bucket] += n
	case r.Class.Dropped():
		t.Dropped[bucket] += n
	}
}

// withNodes has the addresses of measured Services of which an attempt went over a node that is known.
func withNodes(a *analysis.Analysis) map[record.Frontend]bool {
	found := map[record.Frontend]bool{}
	for _, l := range a.Measured() {
		if slices.ContainsFunc(l.Records, func(r analysis.Sample) bool { return a.Nodes[r.Node] != "" }) {
			found[l.Frontend()] = true
		}
	}
	return found
}

// addPaths adds a row for each node that the lane's attempts went over. Where no node is known, the row needs no words about it.
func (t *Timeline) addPaths(a *analysis.Analysis, l *analysis.Lane, known bool) {
	tallies := make([]*Tally, len(a.Nodes))
	for i := range l.Records {
		r := &l.Records[i]
		if tallies[r.Node] == nil {
			tallies[r.Node] = NewTally(t.Axis.Buckets)
		}
		tallies[r.Node].Add(t.Axis.Bucket(r.Intended), r)
	}
	var nodes []int
	for i := range tallies {
		if tallies[i] != nil {
			nodes = append(nodes, i)
		}
	}
	slices.SortFunc(nodes, func(x, y int) int { return cmp.Compare(a.Nodes[x], a.Nodes[y]) })
	for _, node := range nodes {
		name := l.Name
		if known {
			name += " over " + analysis.NodeText(a.Nodes[node])
		}
		row := Row{Name: name, Detail: l.Client + " to " + l.Target, Kind: "path", Node: a.Nodes[node],
			Numbers: map[string][]int{"attempts": tallies[node].Attempts, "delayed": tallies[node].Delayed, "dropped": tallies[node].Dropped}}
		row.Areas = AreasOf(t.PathShapes(tallies[node], l.DrawnGap()), float64(t.Height))
		row.Shapes = t.memberShapes(a.Paths.Of(l.Frontend()), a.Nodes[node], a.End)
		t.Add(row, RowHeight)
	}
}

// PathShapes draws a path: a long bar while all attempts have one class, and stacked shares for each bucket with several classes.
func (t *Timeline) PathShapes(n *Tally, gap time.Duration) []Shape {
	const height = RowHeight - 5
	var shapes []Shape
	bridge := max(3, int(30*gap/t.Axis.Step)) // a path gets attempts at random intervals, which are no outages
	for i := 0; i < t.Axis.Buckets; i++ {
		fate := n.fate(i)
		switch fate {
		case "":
			continue
		case mixed:
			shapes = append(shapes, t.lossShapes(n, i, height)...)
			continue
		}
		end := i
		for k := i + 1; k < t.Axis.Buckets && k-end <= bridge && (n.fate(k) == fate || n.fate(k) == ""); k++ {
			if n.Attempts[k] > 0 {
				end = k
			}
		}
		x := t.Axis.X(t.Axis.Start(i))
		shapes = append(shapes, Shape{X: x, Width: max(1.5, units.Tenth(t.Axis.X(t.Axis.Start(end+1))-x)), Height: height, Class: fate})
		i = end
	}
	return shapes
}

const mixed = "mixed"

// fate is the class of all attempts of a bucket: empty without attempts, mixed for several classes.
func (t *Tally) fate(i int) string {
	all := t.Attempts[i]
	switch {
	case all == 0:
		return ""
	case t.Dropped[i] == all:
		return "dropped"
	case t.Delayed[i] == all:
		return "delayed"
	case t.Probe[i] == all:
		return "probe"
	case t.Dropped[i]+t.Delayed[i]+t.Probe[i] == 0:
		return "ok"
	}
	return mixed
}

// lossShapes draws a bucket with several classes. Each loss has a visible height, however many attempts succeeded.
func (t *Timeline) lossShapes(n *Tally, i int, height float64) []Shape {
	const least = 0.3
	x := t.Axis.X(t.Axis.Start(i))
	s := Shape{X: x, Width: max(2, units.Tenth(t.Axis.X(t.Axis.Start(i+1))-x))}
	var shapes []Shape
	left := height
	for _, part := range [...]struct {
		class string
		n     int
	}{{"dropped", n.Dropped[i]}, {"delayed", n.Delayed[i]}, {"probe", n.Probe[i]}} {
		if part.n > 0 {
			s.Class, s.Height = part.class, units.Tenth(min(left, height*max(least, float64(part.n)/float64(n.Attempts[i]))))
			shapes = append(shapes, s)
			s.Y, left = units.Tenth(s.Y+s.Height), left-s.Height
		}
	}
	if n.Attempts[i] > n.Dropped[i]+n.Delayed[i]+n.Probe[i] && left > 0 {
		s.Class, s.Height = "ok", units.Tenth(left)
		shapes = append(shapes, s)
	}
	return shapes
}

// memberShapes draws a thin line below a path while the load balancer had its node as a member.
func (t *Timeline) memberShapes(ts record.Memberships, node string, end time.Duration) []Shape {
	var shapes []Shape
	for i := 0; i < len(ts); i++ {
		if !slices.Contains(ts[i].Nodes, node) {
			continue
		}
		until := end
		k := i + 1
		for ; k < len(ts) && slices.Contains(ts[k].Nodes, node); k++ {
		}
		if k < len(ts) {
			until = ts[k].At
		}
		x := t.Axis.X(ts[i].At)
		if w := units.Tenth(t.Axis.X(until) - x); w > 0 {
			shapes = append(shapes, Shape{X: x, Y: RowHeight - 4, Width: w, Height: 3, Class: "member", Text: node + " in the load balancer"})
		}
		i = k
	}
	return shapes
}

// coarseAxis is the axis of the answers. Its buckets are at least a second wide.
func (t *Timeline) coarseAxis() Axis {
	x := t.Axis
	x.Step = max(x.Step, time.Second)
	x.Buckets = int((x.To - x.From + x.Step - 1) / x.Step)
	return x
}

// coarse sums numbers per bucket into the buckets of the coarse axis.
func (t *Timeline) coarse(numbers []int) []int {
	x := t.coarseAxis()
	sums := make([]int, x.Buckets)
	for i, n := range numbers {
		sums[x.Bucket(t.Axis.Start(i))] += n
	}
	return sums
}

// outline draws numbers of the coarse axis as a stepped area on the bottom of the next row.
func (t *Timeline) outline(class string, numbers []int, most int) Area {
	x, bottom := t.coarseAxis(), float64(t.Height+RowHeight)
	var b strings.Builder
	for i := 0; i < len(numbers); i++ {
		if numbers[i] == 0 {
			continue
		}
		fmt.Fprintf(&b, "M%v %v", x.X(x.Start(i)), bottom)
		for ; i < len(numbers) && numbers[i] > 0; i++ {
			height := units.Tenth(max(1.5, float64(numbers[i])/float64(most)*(RowHeight-podStrip-3)))
			fmt.Fprintf(&b, "V%vH%v", units.Tenth(bottom-height), x.X(x.Start(i+1)))
		}
		fmt.Fprintf(&b, "V%vZ", bottom)
	}
	return Area{class, b.String()}
}

// The letters of a row's name and detail that fit left of the plot.
const (
	nameLetters   = 26
	detailLetters = 34
)

// Label is the name as it is drawn: without its middle where it is too long.
func (r Row) Label() string { return Shortened(r.Name, nameLetters) }

// Note is the detail as it is drawn.
func (r Row) Note() string { return Shortened(r.Detail, detailLetters) }

// Shortened leaves out the middle of a text of more than a number of letters: names differ at their ends.
func Shortened(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	end := max(0, most-1) / 2
	return string(letters[:max(0, most-1-end)]) + "…" + string(letters[len(letters)-end:])
}

// Fitting cuts a label to the available width. It returns an empty label where less than three letters fit.
func Fitting(label string, width float64) string {
	const letter, least = 6.2, 4
	room := int((width - 6) / letter)
	letters := []rune(label)
	switch {
	case len(letters) <= room:
		return label
	case room < least:
		return ""
	}
	return string(letters[:room-1]) + "…"
}
