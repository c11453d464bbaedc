package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// mostMarkLines is how many lines of marks are drawn at most.
const mostMarkLines = 8

// laneMarks writes what happened, each with a bar in its column: as many lines as it takes for no two to meet. Where not all have room, steps
// come before what follows from them.
func laneMarks(a *analysis.Analysis, x chart.Axis) []string {
	marks := marksOf(a, x)
	lines, left := placed(marks)
	if left > 0 {
		slices.SortStableFunc(marks, func(p, q laneMark) int { return cmp.Compare(p.order, q.order) })
		lines, left = placed(marks)
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… %s more", units.Plural(left, "event")))
	}
	return lines
}

// laneMark is an event in the drawing.
type laneMark struct {
	column int
	text   string
	order  int // first steps, then what follows from them, such as the readiness of a pod
}

// marksOf returns the marks of the events in the drawing. Steps of the detector's proof have none.
func marksOf(a *analysis.Analysis, x chart.Axis) (marks []laneMark) {
	proving := a.Proving()
	for _, e := range a.Events {
		if e.Kind() == record.KindStep && proving(e.At) {
			continue
		}
		if text, order := markOf(a, e); text != "" && e.At >= x.From && e.At < x.To {
			marks = append(marks, laneMark{x.Bucket(e.At), "|" + text, order})
		}
	}
	return marks
}

// placed puts marks in lines, each in the first one with room, and returns how many have none.
func placed(marks []laneMark) (texts []string, left int) {
	var lines [][]rune
	for _, m := range marks {
		at := slices.IndexFunc(lines, func(line []rune) bool { return m.fits(line) })
		switch {
		case at < 0 && len(lines) == mostMarkLines:
			left++
			continue
		case at < 0:
			at = len(lines)
			lines = append(lines, nil)
		}
		text := []rune(m.text)
		if more := m.column + len(text) - len(lines[at]); more > 0 {
			lines[at] = append(lines[at], []rune(strings.Repeat(" ", more))...)
		}
		copy(lines[at][m.column:], text)
	}
	for _, line := range lines {
		texts = append(texts, string(line))
	}
	return texts, left
}

// fits reports whether a line is empty where the mark goes, and one letter before and after it.
func (m laneMark) fits(line []rune) bool {
	from, to := min(max(0, m.column-1), len(line)), min(m.column+utf8.RuneCountInString(m.text)+1, len(line))
	return strings.TrimSpace(string(line[from:to])) == ""
}

// The orders of marks.
const (
	ofStep = iota
	ofEffect
)

// markOf is what an event is called in the drawing, and its order. The text is empty for events that are left out.
func markOf(a *analysis.Analysis, e record.Event) (text string, order int) {
	switch body := e.Body.(type) {
	case record.Step:
		if body.State == record.StepBegin {
			return e.Object, ofStep
		}
	case record.Pod:
		if slices.Contains([]record.PodState{record.PodReady, record.PodTerminating, record.PodExited}, body.State) && a.Serves(analysis.PodOf(e)) {
			return "pod on " + analysis.NodeOf(e) + " " + string(body.State), ofEffect
		}
	case record.Proxy:
		if slices.Contains([]record.ProxyState{record.ProxyKilled, record.ProxyExited, record.ProxyReady, record.ProxyFlushed, record.ProxyRestored, record.ProxyBlocked, record.ProxyUnblocked}, body.State) {
			return "proxy of " + e.Node + " " + string(body.State), ofEffect
		}
	case record.Membership:
		if a.Measures(record.NewFrontend(body.Address, body.Port, body.Protocol)) {
			return "balancer: " + cmp.Or(strings.Join(body.Nodes, ", "), "no node"), ofEffect
		}
	case record.Check: // no other event tells the result of its step
		if strings.HasPrefix(body.Target, record.ARPTarget) {
			return "ARP answered by " + body.Got, ofStep
		}
	}
	return "", ofStep
}
