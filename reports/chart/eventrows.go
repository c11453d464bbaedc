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

// eventRow lists the kinds of events that share a row.
type eventRow struct {
	name  string
	kinds []record.Kind
	class string
}

// namedRows are the rows of several kinds, and those whose name or colour is not the default.
var namedRows = []eventRow{
	{"steps", []record.Kind{record.KindStep}, "step"},
	{"rollouts", []record.Kind{record.KindRollout}, "rollout"},
	{"faults", []record.Kind{record.KindFault, record.KindGuard}, "fault"}, // those of the proof have the row "self-test"
	{"missing records", []record.Kind{record.KindMissingRecord}, "fault"},
	{"API server", []record.Kind{record.KindAPI}, "fault"},
	{"nodes", []record.Kind{record.KindNode}, "fault"},
	{"foreign", []record.Kind{record.KindInterference}, "fault"},
	{"Service", []record.Kind{record.KindService}, "step"},
	{"proxy process", []record.Kind{record.KindProxy}, "proxy"},
	{"recovery", []record.Kind{record.KindRecovery}, "proxy"},
	{"pods", []record.Kind{record.KindPod}, "pod"},
	{"endpoints", []record.Kind{record.KindEndpoint}, "endpoint"},
	{"kernel tables", []record.Kind{record.KindKernelChange, record.KindKernelTable}, "kernel"},
	{"health checks", []record.Kind{record.KindHealthCheck}, "health"},
	{"load balancer", []record.Kind{record.KindMembership}, "balancer"},
	{"log lines", []record.Kind{record.KindLog}, "log"},
}

// kindsWithoutRow are drawn elsewhere on the page, or describe the measurement.
var kindsWithoutRow = []record.Kind{record.KindLane, record.KindLaneEnd, record.KindPhase, record.KindFlows, record.KindChoice, record.KindClockBound, record.KindSkipped, record.KindCheck, record.KindCost,
	record.KindProof}

// eventRows returns the named rows, and after them a row for each other kind, with the name of the kind.
func eventRows(named []eventRow) []eventRow {
	all, placed := slices.Clone(named), slices.Clone(kindsWithoutRow)
	for _, row := range named {
		placed = append(placed, row.kinds...)
	}
	for _, kind := range record.Kinds() {
		if !slices.Contains(placed, kind) {
			all = append(all, eventRow{string(kind), []record.Kind{kind}, "event"})
		}
	}
	return all
}

// addEvents adds a row for each group of kinds that occurred: bars for events with a begin and an end, marks for the others. Marks
// that would hide each other become one mark with their number.
func (t *Timeline) addEvents(a *analysis.Analysis) {
	for _, row := range eventRows(namedRows) {
		if t.addStates(row) {
			continue
		}
		var own, proof []record.Event
		for _, e := range a.Events {
			switch body, _ := e.Body.(record.Fault); {
			case !slices.Contains(row.kinds, e.Kind()) || e.At < t.Axis.From:
			case body.Control:
				proof = append(proof, e)
			default:
				own = append(own, e)
			}
		}
		t.addEventRow(a, row, own)
		t.addEventRow(a, eventRow{"self-test", nil, "proof"}, proof)
	}
}

func (t *Timeline) addEventRow(a *analysis.Analysis, row eventRow, own []record.Event) {
	if len(own) > 0 {
		bars, marks := Spans(own, a.End)
		r := Row{Name: row.name, Kind: "events"}
		for _, b := range bars {
			x := t.Axis.X(b.From)
			width := max(2, units.Tenth(t.Axis.X(b.To)-x))
			bar := Shape{X: x, Y: 2, Width: width, Height: EventHeight - 4, Class: row.class + " bar", Text: b.Text, Label: Fitting(b.Name, width)}
			r.Shapes = AppendUnhidden(r.Shapes, bar)
		}
		r.Shapes = append(r.Shapes, t.marks(marks, row.class)...)
		t.Add(r, EventHeight)
	}
}

// Span is a begin event with its end event.
type Span struct {
	From, To   time.Duration
	Name, Text string
}

// Spans joins begin events with their end events, and returns the other events as marks.
func Spans(events []record.Event, end time.Duration) (bars []Span, marks []record.Event) {
	open := map[string]int{}
	for _, e := range events {
		id, state := spanOf(e)
		key := string(e.Kind()) + " " + e.Object + " " + id
		switch state {
		case string(record.StepBegin): // all kinds have the same words
			open[key] = len(bars)
			bars = append(bars, Span{e.At, end, analysis.FirstOf(e.Object, string(e.Kind())), EventText(e)})
		case string(record.StepEnd), string(record.StepFailed):
			i, begun := open[key]
			if !begun {
				marks = append(marks, e)
				continue
			}
			bars[i].To = e.At
			bars[i].Text += fmt.Sprintf(", %s until %s", state, units.At(units.Seconds(e.At)))
			delete(open, key)
		default:
			marks = append(marks, e)
		}
	}
	return bars, marks
}

// spanOf returns the state of an event that begins or ends a span, and the key of that span.
func spanOf(e record.Event) (id, state string) {
	switch body := e.Body.(type) {
	case record.Step:
		return "", string(body.State)
	case record.Rollout:
		return "", string(body.State)
	case record.Fault:
		return body.ID, string(body.State)
	case record.Interference:
		return body.ID, string(body.State)
	}
	return "", ""
}

func (t *Timeline) marks(events []record.Event, class string) []Shape {
	var shapes []Shape
	for _, e := range events {
		mark := Shape{X: units.Tenth(t.Axis.X(e.At) - 1.5), Y: 2, Width: 3, Height: EventHeight - 4, Class: class + " mark", Text: EventText(e)}
		shapes = AppendUnhidden(shapes, mark)
	}
	return shapes
}

// AppendUnhidden appends a shape. If it would hide the previous shape, it appends only its text to that shape's.
func AppendUnhidden(shapes []Shape, s Shape) []Shape {
	const apart, most = 3.0, 6
	n := len(shapes)
	if n == 0 || s.Width > apart || shapes[n-1].Width > apart || s.X-shapes[n-1].X >= apart {
		return append(shapes, s)
	}
	last := &shapes[n-1]
	last.hidden++
	last.Label = ""
	if last.hidden < most {
		last.Text += "\n" + s.Text
		return shapes
	}
	shown, _, _ := strings.Cut(last.Text, "\n… ")
	last.Text = fmt.Sprintf("%s\n… %d more", shown, last.hidden-most+1)
	return shapes
}

// EventText describes an event in one line.
func EventText(e record.Event) string {
	text := units.Clipped(e.Text)
	if text == "" {
		text = strings.TrimSpace(fmt.Sprintf("%s %s", e.Kind(), e.Object))
	}
	if e.Node != "" && !strings.Contains(text, e.Node) {
		text += " (" + e.Node + ")"
	}
	return units.At(units.Seconds(e.At)) + " " + text
}

// mostStateRows is how many objects have a row of states each; the events of more are marks.
const mostStateRows = 8

// addStates draws a kind of events as states over time, a row for each object. It reports whether it did, or another row has them.
func (t *Timeline) addStates(of eventRow) bool {
	kind := ""
	switch of.kinds[0] {
	case record.KindPod:
		return t.podsInRows()
	case record.KindHealthCheck:
		kind = analysis.StateHealth
	case record.KindMembership:
		kind = analysis.StateBalancer
	}
	rows := slices.DeleteFunc(slices.Clone(t.States), func(r analysis.StateRow) bool { return r.Kind != kind })
	if len(rows) == 0 || len(rows) > mostStateRows {
		return false
	}
	for _, r := range rows {
		t.addStateRow(r, "events")
	}
	return true
}
