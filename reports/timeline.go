package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// timeline is the drawing below the first screen: events on top, then a row for each path and for each backend.
type timeline struct {
	axis   axis
	Height int
	Ticks  []tick
	Bands  []shape // the phases
	Rows   []timelineRow
	More   string // what was left out
}

// timelineRow is one row of the drawing, with its numbers by bucket for the linked cursor.
type timelineRow struct {
	Name, Detail string
	Kind         string // events, path or backend
	Node         string // empty when it is about none or several
	Y, Height    int
	Shapes       []shape
	Areas        []area
	Numbers      map[string][]int
}

// shape is a rectangle of the drawing.
type shape struct {
	X, Y, Width, Height float64
	Class, Text         string
	Label               string // drawn inside when it has room
	hidden              int    // how many others its text tells of, because they would hide each other
}

// area is a stepped outline, or many rectangles in one: much smaller than its rectangles would be.
type area struct{ Class, Outline string }

// areasOf joins the rectangles of each class, in the order of the classes' first ones. top is where their row begins.
// Each begins relative to the one before, in tenths that add up exactly.
func areasOf(shapes []shape, top float64) []area {
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
	var all []area
	for _, class := range order {
		all = append(all, area{class, byClass[class].String()})
	}
	return all
}

const (
	headHeight   = 34
	eventHeight  = 18
	rowHeight    = 28
	rowGap       = 4
	mostBackends = 40
)

func (a *analysis) timeline() *timeline {
	from, to := a.end, a.end
	for _, l := range a.lanes {
		if len(l.records) > 0 {
			from = min(from, l.begin)
		}
	}
	if len(a.phases) > 0 {
		from = min(from, a.phases[0].from)
	}
	t := &timeline{axis: newAxis(from, to, 100*time.Millisecond, mostBuckets), Height: headHeight}
	t.Ticks = t.axis.ticks()
	t.addEvents(a)
	for _, l := range a.measured() {
		t.addPaths(a, l)
	}
	t.addBackends(a)
	t.Bands = t.phases(a)
	return t
}

func (t *timeline) add(r timelineRow, height int) {
	r.Y, r.Height = t.Height, height
	for i := range r.Shapes {
		r.Shapes[i].Y += float64(t.Height)
	}
	t.Rows = append(t.Rows, r)
	t.Height += height + rowGap
}

// phases are bands behind everything.
func (t *timeline) phases(a *analysis) []shape {
	var bands []shape
	for i, p := range a.phases {
		if p.to > p.from {
			x := t.axis.x(p.from)
			width := tenth(t.axis.x(p.to) - x)
			bands = append(bands, shape{X: x, Width: width, Height: float64(t.Height), Class: "phase-" + strconv.Itoa(i%2), Label: fitting(p.name, width)})
		}
	}
	return bands
}

// tally counts attempts by bucket.
type tally struct{ attempts, delayed, dropped, probe []int }

func newTally(n int) *tally {
	return &tally{make([]int, n), make([]int, n), make([]int, n), make([]int, n)}
}

func (t *tally) add(bucket int, r *sample) {
	n := int(r.n)
	t.attempts[bucket] += n
	switch {
	case r.class == record.Delayed:
		t.delayed[bucket] += n
	case r.class == record.Probe:
		t.probe[bucket] += n
	case r.class.Dropped():
		t.dropped[bucket] += n
	}
}

// addPaths adds a row for each node that the lane's attempts went over.
func (t *timeline) addPaths(a *analysis, l *lane) {
	tallies := make([]*tally, len(a.nodes))
	for i := range l.records {
		r := &l.records[i]
		if tallies[r.node] == nil {
			tallies[r.node] = newTally(t.axis.buckets)
		}
		tallies[r.node].add(t.axis.bucket(r.intended), r)
	}
	var nodes []int
	for i := range tallies {
		if tallies[i] != nil {
			nodes = append(nodes, i)
		}
	}
	slices.SortFunc(nodes, func(x, y int) int { return cmp.Compare(a.nodes[x], a.nodes[y]) })
	for _, node := range nodes {
		row := timelineRow{Name: l.Name + " over " + nodeText(a.nodes[node]), Detail: l.Client + " to " + l.Target, Kind: "path", Node: a.nodes[node],
			Numbers: map[string][]int{"attempts": tallies[node].attempts, "delayed": tallies[node].delayed, "dropped": tallies[node].dropped}}
		row.Areas = areasOf(t.pathShapes(tallies[node], l.drawnGap()), float64(t.Height))
		row.Shapes = t.memberShapes(a.paths.Of(l.Frontend()), a.nodes[node], a.end)
		t.add(row, rowHeight)
	}
}

// pathShapes draws a path: long bars while all attempts had one fate, and for each bucket with several their shares
// from the top.
func (t *timeline) pathShapes(n *tally, gap time.Duration) []shape {
	const height = rowHeight - 5
	var shapes []shape
	bridge := max(3, int(30*gap/t.axis.step)) // random gaps between attempts of a path are no gaps in its service
	for i := 0; i < t.axis.buckets; i++ {
		fate := n.fate(i)
		switch fate {
		case "":
			continue
		case mixed:
			shapes = append(shapes, t.lossShapes(n, i, height)...)
			continue
		}
		end := i
		for k := i + 1; k < t.axis.buckets && k-end <= bridge && (n.fate(k) == fate || n.fate(k) == ""); k++ {
			if n.attempts[k] > 0 {
				end = k
			}
		}
		x := t.axis.x(t.axis.start(i))
		shapes = append(shapes, shape{X: x, Width: max(1.5, tenth(t.axis.x(t.axis.start(end+1))-x)), Height: height, Class: fate})
		i = end
	}
	return shapes
}

const mixed = "mixed"

// fate is the one class that all attempts of a bucket share, empty without any, or mixed.
func (t *tally) fate(i int) string {
	all := t.attempts[i]
	switch {
	case all == 0:
		return ""
	case t.dropped[i] == all:
		return "dropped"
	case t.delayed[i] == all:
		return "delayed"
	case t.probe[i] == all:
		return "probe"
	case t.dropped[i]+t.delayed[i]+t.probe[i] == 0:
		return "ok"
	}
	return mixed
}

// lossShapes draws a bucket with several fates: each loss is tall enough to be seen, however many others were well.
func (t *timeline) lossShapes(n *tally, i int, height float64) []shape {
	const least = 0.3
	x := t.axis.x(t.axis.start(i))
	s := shape{X: x, Width: max(2, tenth(t.axis.x(t.axis.start(i+1))-x))}
	var shapes []shape
	left := height
	for _, part := range [...]struct {
		class string
		n     int
	}{{"dropped", n.dropped[i]}, {"delayed", n.delayed[i]}, {"probe", n.probe[i]}} {
		if part.n > 0 {
			s.Class, s.Height = part.class, tenth(min(left, height*max(least, float64(part.n)/float64(n.attempts[i]))))
			shapes = append(shapes, s)
			s.Y, left = tenth(s.Y+s.Height), left-s.Height
		}
	}
	if n.attempts[i] > n.dropped[i]+n.delayed[i]+n.probe[i] && left > 0 {
		s.Class, s.Height = "ok", tenth(left)
		shapes = append(shapes, s)
	}
	return shapes
}

// memberShapes draws a thin line below a path while its node was in the load balancer's table.
func (t *timeline) memberShapes(ts record.Memberships, node string, end time.Duration) []shape {
	var shapes []shape
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
		x := t.axis.x(ts[i].At)
		if w := tenth(t.axis.x(until) - x); w > 0 {
			shapes = append(shapes, shape{X: x, Y: rowHeight - 4, Width: w, Height: 3, Class: "member", Text: node + " in the load balancer"})
		}
		i = k
	}
	return shapes
}

// answers is what one backend answered.
type answers struct {
	id                int
	total             int
	plain, terminated []int // by bucket
}

// addBackends adds a row for each pod that answered, in the order of their first answers.
func (t *timeline) addBackends(a *analysis) {
	byBackend := make([]*answers, len(a.backends))
	for _, l := range a.measured() {
		for i := range l.records {
			r := &l.records[i]
			if r.backend == 0 {
				continue
			}
			b := byBackend[r.backend]
			if b == nil {
				b = &answers{id: int(r.backend), plain: make([]int, t.axis.buckets), terminated: make([]int, t.axis.buckets)}
				byBackend[r.backend] = b
			}
			k := t.axis.bucket(r.intended)
			b.total += int(r.n)
			if r.terminating {
				b.terminated[k] += int(r.n)
			} else {
				b.plain[k] += int(r.n)
			}
		}
	}
	byBackend = slices.DeleteFunc(byBackend, func(b *answers) bool { return b == nil })
	if more := len(byBackend) - mostBackends; more > 0 {
		slices.SortStableFunc(byBackend, func(x, y *answers) int { return cmp.Compare(y.total, x.total) })
		byBackend = byBackend[:mostBackends]
		slices.SortFunc(byBackend, func(x, y *answers) int { return cmp.Compare(x.id, y.id) })
		t.More = fmt.Sprintf("%s with fewer answers not drawn.", plural(more, "backend"))
	}
	slices.SortStableFunc(byBackend, func(x, y *answers) int { return cmp.Compare(x.first(), y.first()) })
	most := 1
	for _, b := range byBackend {
		plain, terminated := t.coarse(b.plain), t.coarse(b.terminated)
		for i := range plain {
			most = max(most, plain[i], terminated[i])
		}
	}
	for _, b := range byBackend {
		t.addBackend(a, b, most)
	}
}

func (b *answers) first() int {
	for i := range b.plain {
		if b.plain[i]+b.terminated[i] > 0 {
			return i
		}
	}
	return len(b.plain)
}

func (t *timeline) addBackend(a *analysis, b *answers, most int) {
	pod := a.backends[b.id]
	row := timelineRow{Name: pod.name, Detail: strings.Trim(pod.node+" · "+pod.generation, " ·"), Kind: "backend", Node: pod.node,
		Numbers: map[string][]int{"answers": b.plain, "while terminating": b.terminated}}
	if from, until, ok := a.terminated(pod.name); ok {
		x := t.axis.x(from)
		row.Shapes = append(row.Shapes, shape{X: x, Width: max(1, tenth(t.axis.x(until)-x)), Height: rowHeight, Class: "terminating",
			Text: pod.name + " was terminating"})
	}
	row.Areas = []area{t.outline("answers", t.coarse(b.plain), most), t.outline("last-answers", t.coarse(b.terminated), most)}
	t.add(row, rowHeight)
}

// terminated is when a pod began to terminate and when it was gone, as the events tell.
func (a *analysis) terminated(pod string) (from, until time.Duration, ok bool) {
	until = a.end
	for _, e := range a.events {
		body, is := e.Body.(record.Pod)
		if !is || podOf(e) != pod {
			continue
		}
		switch state := body.State; {
		case state == "terminating" && !ok:
			from, ok = e.At, true
		case ok && (state == "exited" || state == "removed"):
			return from, e.At, true
		}
	}
	return from, until, ok
}

// coarseAxis is the axis of the answers: no finer than a second.
func (t *timeline) coarseAxis() axis {
	x := t.axis
	x.step = max(x.step, time.Second)
	x.buckets = int((x.to - x.from + x.step - 1) / x.step)
	return x
}

// coarse adds up numbers by bucket into the buckets of the coarse axis.
func (t *timeline) coarse(numbers []int) []int {
	x := t.coarseAxis()
	sums := make([]int, x.buckets)
	for i, n := range numbers {
		sums[x.bucket(t.axis.start(i))] += n
	}
	return sums
}

// outline draws numbers of the coarse axis as steps that stand on the bottom of the row which is added next.
func (t *timeline) outline(class string, numbers []int, most int) area {
	x, bottom := t.coarseAxis(), float64(t.Height+rowHeight)
	var b strings.Builder
	for i := 0; i < len(numbers); i++ {
		if numbers[i] == 0 {
			continue
		}
		fmt.Fprintf(&b, "M%v %v", x.x(x.start(i)), bottom)
		for ; i < len(numbers) && numbers[i] > 0; i++ {
			height := tenth(max(1.5, float64(numbers[i])/float64(most)*(rowHeight-3)))
			fmt.Fprintf(&b, "V%vH%v", tenth(bottom-height), x.x(x.start(i+1)))
		}
		fmt.Fprintf(&b, "V%vZ", bottom)
	}
	return area{class, b.String()}
}

// fitting cuts a label to the room that it has; nothing is better than two letters.
func fitting(label string, width float64) string {
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
