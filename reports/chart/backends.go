package chart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// mostPods is how many pods have a row each; more are drawn as one row for each node.
const mostPods = 16

// answers counts the answers of one backend, or of all on a node.
type answers struct {
	name, detail, node string
	total              int
	plain, terminated  []int // by bucket
}

// addBackends adds a row for each pod that answered, in the order of their first answers, and for each other pod of a measured Service.
func (t *Timeline) addBackends(a *analysis.Analysis) {
	all := t.answersOf(a)
	if len(all) > mostPods {
		all = byNode(all)
	}
	slices.SortStableFunc(all, func(x, y *answers) int { return cmp.Compare(x.first(), y.first()) })
	most := 1
	for _, b := range all {
		plain, terminated := t.coarse(b.plain), t.coarse(b.terminated)
		for i := range plain {
			most = max(most, plain[i], terminated[i])
		}
	}
	for _, b := range all {
		t.addBackend(b, most)
	}
	if !t.podsInRows() {
		return
	}
	for _, s := range t.States {
		if s.Kind == analysis.StatePod && !slices.ContainsFunc(all, func(b *answers) bool { return b.name == s.Name }) {
			t.Add(Row{Name: s.Name, Detail: "", Kind: "backend", Node: s.Node, Shapes: t.stateShapes(s, podStrip)}, EventHeight)
		}
	}
}

// answersOf counts the answers of each pod on the measured lanes.
func (t *Timeline) answersOf(a *analysis.Analysis) []*answers {
	byBackend := make([]*answers, len(a.Backends))
	for _, l := range a.Measured() {
		for i := range l.Records {
			r := &l.Records[i]
			if r.Backend == 0 {
				continue
			}
			b := byBackend[r.Backend]
			if b == nil {
				pod := a.Backends[r.Backend]
				b = &answers{name: pod.Name, detail: strings.Trim(pod.Node+" · "+pod.Generation, " ·"), node: pod.Node, plain: make([]int, t.Axis.Buckets), terminated: make([]int, t.Axis.Buckets)}
				byBackend[r.Backend] = b
			}
			k := t.Axis.Bucket(r.Intended)
			b.total += int(r.N)
			if r.Terminating {
				b.terminated[k] += int(r.N)
			} else {
				b.plain[k] += int(r.N)
			}
		}
	}
	return slices.DeleteFunc(byBackend, func(b *answers) bool { return b == nil })
}

// byNode sums the answers of the pods of each node.
func byNode(pods []*answers) (nodes []*answers) {
	count := map[string]int{}
	for _, b := range pods {
		count[b.node]++
		i := slices.IndexFunc(nodes, func(n *answers) bool { return n.node == b.node })
		if i < 0 {
			i, nodes = len(nodes), append(nodes, &answers{node: b.node, plain: make([]int, len(b.plain)), terminated: make([]int, len(b.plain))})
		}
		n := nodes[i]
		n.total += b.total
		for k := range b.plain {
			n.plain[k] += b.plain[k]
			n.terminated[k] += b.terminated[k]
		}
		n.name, n.detail = "pods on "+analysis.NodeText(b.node), units.Plural(count[b.node], "pod")+" in all"
	}
	return nodes
}

func (b *answers) first() int {
	for i := range b.plain {
		if b.plain[i]+b.terminated[i] > 0 {
			return i
		}
	}
	return len(b.plain)
}

// podStrip is the height of a pod's states above its answers.
const podStrip = 6

func (t *Timeline) addBackend(b *answers, most int) {
	row := Row{Name: b.name, Detail: b.detail, Kind: "backend", Node: b.node, Numbers: map[string][]int{"answers": b.plain, "while terminating": b.terminated}}
	for _, s := range t.States {
		if s.Kind == analysis.StatePod && s.Name == b.name {
			row.Shapes = append(row.Shapes, t.stateShapes(s, podStrip)...)
		}
	}
	row.Areas = []Area{t.outline("answers", t.coarse(b.plain), most), t.outline("last-answers", t.coarse(b.terminated), most)}
	t.Add(row, RowHeight)
}

// podsInRows reports whether each pod has a row of its own.
func (t *Timeline) podsInRows() bool {
	n := 0
	for _, s := range t.States {
		if s.Kind == analysis.StatePod {
			n++
		}
	}
	return n > 0 && n <= mostPods
}

// stateShapes draws the states of an object as bars.
func (t *Timeline) stateShapes(r analysis.StateRow, height float64) (shapes []Shape) {
	for _, s := range r.Spans {
		if s.To <= t.Axis.From || s.From >= t.Axis.To {
			continue
		}
		x := t.Axis.X(s.From)
		bar := Shape{X: x, Width: max(1.5, units.Tenth(t.Axis.X(s.To)-x)), Height: height, Class: "state-" + string(s.Level),
			Text: fmt.Sprintf("%s: %s from %s to %s", r.Name, s.Word, units.At(units.Seconds(s.From)), units.At(units.Seconds(s.To)))}
		if height > 11 {
			bar.Label = Fitting(s.Word, bar.Width)
		}
		shapes = AppendUnhidden(shapes, bar)
	}
	return shapes
}

// addStateRow adds a row with the states of one object. kind is that of the drawing's rows.
func (t *Timeline) addStateRow(r analysis.StateRow, kind string) {
	shapes := t.stateShapes(r, EventHeight-4)
	for i := range shapes {
		shapes[i].Y = 2
	}
	t.Add(Row{Name: stateTitles[r.Kind] + r.Name, Kind: kind, Node: r.Node, Shapes: shapes}, EventHeight)
}

// stateTitles are the names of rows of states, before that of the object.
var stateTitles = map[string]string{analysis.StateEndpoint: "endpoint ", analysis.StatePod: "pod ", analysis.StateKernel: "kernel ",
	analysis.StateHealth: "health of ", analysis.StateBalancer: "balancer, "}
