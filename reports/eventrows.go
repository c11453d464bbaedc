package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// eventRow says which events share a row of the time line.
type eventRow struct {
	name  string
	kinds []Kind
	class string
}

var eventRows = [...]eventRow{
	{"steps", []Kind{EventStep}, "step"},
	{"rollouts", []Kind{EventRollout}, "rollout"},
	{"faults", []Kind{EventInjected, EventGuard}, "fault"},
	{"lost workers", []Kind{EventGap}, "fault"},
	{"nodes", []Kind{EventNode}, "fault"},
	{"foreign", []Kind{EventForeign}, "fault"},
	{"Service", []Kind{EventService}, "step"},
	{"proxy", []Kind{EventProxy}, "proxy"},
	{"pods", []Kind{EventPod}, "pod"},
	{"endpoints", []Kind{EventEndpoint}, "endpoint"},
	{"kernel tables", []Kind{EventKernel, EventTable}, "kernel"},
	{"health checks", []Kind{EventHealth}, "health"},
	{"load balancer", []Kind{EventBalancer}, "balancer"},
	{"log lines", []Kind{EventLog}, "log"},
}

// addEvents adds a row for each group of kinds that occurred: bars for what has a beginning and an end, marks for the
// rest. Marks that would hide each other become one that says how many they are.
func (t *timeline) addEvents(a *analysis) {
	for _, row := range eventRows {
		var own []Event
		for _, e := range a.events {
			if slices.Contains(row.kinds, e.Kind) && e.At >= t.axis.from {
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
func spans(events []Event, end time.Duration) (bars []span, marks []Event) {
	open := map[string]int{}
	for _, e := range events {
		key := string(e.Kind) + " " + e.Object + " " + e.Attrs["id"]
		switch e.Attrs["state"] {
		case "begin":
			open[key] = len(bars)
			bars = append(bars, span{e.At, end, firstOf(e.Object, string(e.Kind)), eventText(e)})
		case "end", "failed":
			i, begun := open[key]
			if !begun {
				marks = append(marks, e)
				continue
			}
			bars[i].to = e.At
			bars[i].text += fmt.Sprintf(", %s until %s", e.Attrs["state"], atText(seconds(e.At)))
			delete(open, key)
		default:
			marks = append(marks, e)
		}
	}
	return bars, marks
}

func (t *timeline) marks(events []Event, class string) []shape {
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
func eventText(e Event) string {
	text := clipped(e.Text)
	if text == "" {
		text = strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.Object, e.Attrs["state"]))
	}
	if e.Node != "" && !strings.Contains(text, e.Node) {
		text += " (" + e.Node + ")"
	}
	return atText(seconds(e.At)) + " " + text
}
