package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
)

// eventRow says which events share a row of the time line.
type eventRow struct {
	name  string
	kinds []record.Kind
	class string
}

var eventRows = [...]eventRow{
	{"steps", []record.Kind{record.KindStep}, "step"},
	{"rollouts", []record.Kind{record.KindRollout}, "rollout"},
	{"faults", []record.Kind{record.KindFault, record.KindGuard}, "fault"},
	{"lost workers", []record.Kind{record.KindMissingRecord}, "fault"},
	{"nodes", []record.Kind{record.KindNode}, "fault"},
	{"foreign", []record.Kind{record.KindInterference}, "fault"},
	{"Service", []record.Kind{record.KindService}, "step"},
	{"proxy", []record.Kind{record.KindProxy}, "proxy"},
	{"pods", []record.Kind{record.KindPod}, "pod"},
	{"endpoints", []record.Kind{record.KindEndpoint}, "endpoint"},
	{"kernel tables", []record.Kind{record.KindKernelChange, record.KindKernelTable}, "kernel"},
	{"health checks", []record.Kind{record.KindHealthCheck}, "health"},
	{"load balancer", []record.Kind{record.KindMembership}, "balancer"},
	{"log lines", []record.Kind{record.KindLog}, "log"},
}

// addEvents adds a row for each group of kinds that occurred: bars for what has a beginning and an end, marks for the
// rest. Marks that would hide each other become one that says how many they are.
func (t *timeline) addEvents(a *analysis) {
	for _, row := range eventRows {
		var own []record.Event
		for _, e := range a.events {
			if slices.Contains(row.kinds, e.Kind()) && e.At >= t.axis.from {
				own = append(own, e)
			}
		}
		if len(own) == 0 {
			continue
		}
		bars, marks := spans(own, a.end)
		r := timelineRow{Name: row.name, Kind: "events"}
		for _, b := range bars {
			x := t.axis.x(b.from)
			width := max(2, tenth(t.axis.x(b.to)-x))
			bar := shape{X: x, Y: 2, Width: width, Height: eventHeight - 4, Class: row.class + " bar", Text: b.text, Label: fitting(b.name, width)}
			r.Shapes = appendUnhidden(r.Shapes, bar)
		}
		r.Shapes = append(r.Shapes, t.marks(marks, row.class)...)
		t.add(r, eventHeight)
	}
}

// span is something that lasted.
type span struct {
	from, to   time.Duration
	name, text string
}

// spans joins begins with their ends; what has neither is left as a mark.
func spans(events []record.Event, end time.Duration) (bars []span, marks []record.Event) {
	open := map[string]int{}
	for _, e := range events {
		id, state := spanOf(e)
		key := string(e.Kind()) + " " + e.Object + " " + id
		switch state {
		case "begin":
			open[key] = len(bars)
			bars = append(bars, span{e.At, end, firstOf(e.Object, string(e.Kind())), eventText(e)})
		case "end", "failed":
			i, begun := open[key]
			if !begun {
				marks = append(marks, e)
				continue
			}
			bars[i].to = e.At
			bars[i].text += fmt.Sprintf(", %s until %s", state, atText(seconds(e.At)))
			delete(open, key)
		default:
			marks = append(marks, e)
		}
	}
	return bars, marks
}

// spanOf returns the state of an event that begins or ends something, and what tells it from others of its kind.
func spanOf(e record.Event) (id, state string) {
	switch body := e.Body.(type) {
	case record.Step:
		return "", body.State
	case record.Rollout:
		return "", body.State
	case record.Fault:
		return body.ID, body.State
	case record.Interference:
		return body.ID, body.State
	}
	return "", ""
}

func (t *timeline) marks(events []record.Event, class string) []shape {
	var shapes []shape
	for _, e := range events {
		mark := shape{X: tenth(t.axis.x(e.At) - 1.5), Y: 2, Width: 3, Height: eventHeight - 4, Class: class + " mark", Text: eventText(e)}
		shapes = appendUnhidden(shapes, mark)
	}
	return shapes
}

// appendUnhidden appends a shape, or only its text to that of the one before when they would hide each other.
func appendUnhidden(shapes []shape, s shape) []shape {
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

// eventText tells an event in one line.
func eventText(e record.Event) string {
	text := clipped(e.Text)
	if text == "" {
		text = strings.TrimSpace(fmt.Sprintf("%s %s", e.Kind(), e.Object))
	}
	if e.Node != "" && !strings.Contains(text, e.Node) {
		text += " (" + e.Node + ")"
	}
	return atText(seconds(e.At)) + " " + text
}
