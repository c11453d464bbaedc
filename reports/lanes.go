package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hitless/hitless/record"
)

// lanesWidth is how many columns of time WriteLanes draws at most, so that it fits a terminal of 80 letters.
const lanesWidth = 58

// WriteLanes draws a run's scenario as lines of text: what was run, the time since the second in which the scenario began, the
// events, and a line for each path of each measured lane, a column for each second or more. A column shows the worst that its
// attempts came to. Below stands how many failed, and the cause of the worst gap.
func WriteLanes(w io.Writer, r *Report, h *record.History) error {
	a, err := analyse(h)
	if err != nil {
		return unreadable(h, err)
	}
	_, err = io.WriteString(w, a.lanesText()+r.lossText())
	return err
}

// lossText is how many connections failed, and the worst gap with its cause, without instants: those of the drawing count from
// the scenario.
func (r *Report) lossText() string {
	failed := r.Totals.Dropped + r.Totals.Delayed
	text := fmt.Sprintf("%s of %s connections failed", thousands(failed), thousands(r.Totals.Attempts))
	if failed > 0 {
		text += " (" + classesText(r.Totals.ByClass) + ")"
	}
	if o := r.worst(); o != nil {
		why, _, _ := strings.Cut(o.Cause.Text, ";")
		text += "; worst gap " + rangeText(o.LowerMs, o.UpperMs)
		if o.Node != "" {
			text += " on " + o.Node
		}
		text += ": " + why
	}
	if r.Verdict == Invalid {
		text = r.headline() + "; measured all the same: " + text
	}
	return wrapped(text + ".")
}

// wrapped is a text in lines of at most 80 letters, broken between words.
func wrapped(text string) string {
	var b strings.Builder
	room := 0
	for _, word := range strings.Fields(text) {
		switch n := utf8.RuneCountInString(word) + 1; {
		case room >= n:
			b.WriteByte(' ')
			room -= n
		default:
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			room = 80 - n
		}
		b.WriteString(word)
	}
	return b.String() + "\n"
}

func (a *analysis) lanesText() string {
	scenario, begun := a.phase("scenario")
	if !begun {
		return "the scenario of this run never began\n"
	}
	step := stepFor(scenario.to-scenario.from+5*time.Second, time.Second, lanesWidth)
	// Columns are whole seconds, so that a thinned record's bucket lies in one.
	zero := floorTo(scenario.from, record.BucketLength)
	x := axis{from: max(0, zero-2*step), step: step}
	x.buckets = min(lanesWidth, int((scenario.to-x.from)/step)+2)
	x.to = x.start(x.buckets)
	var rows []laneRow
	for _, l := range a.measured() {
		rows = append(rows, a.laneRows(x, l)...)
	}
	width := len("events")
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r.name))
	}
	var b bytes.Buffer
	line := func(name, text string) { fmt.Fprintf(&b, "%-*s  %s\n", width, name, strings.TrimRight(text, " ")) }
	fmt.Fprintf(&b, "%s, %s, seed %d\n", (&Report{Subject: a.run.Subject}).subjectText(), a.run.Scenario, a.run.Seed)
	line("+s", x.ruler(zero))
	for i, marks := range a.laneMarks(x) {
		line([]string{"events", ""}[min(i, 1)], marks)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		line(r.name, r.text)
		for letter, word := range laneWords {
			seen[word] = seen[word] || strings.ContainsRune(r.text, letter)
		}
	}
	var legend []string
	for _, letter := range laneLetters {
		if word := laneWords[letter]; seen[word] {
			legend = append(legend, string(letter)+" "+word)
		}
	}
	line("", strings.Join(legend, "   ")+fmt.Sprintf("   each column %s", msText(millis(step))))
	return b.String()
}

// The letters of a path, and their order in the legend.
const laneLetters = "█▓▒×·"

var laneWords = map[rune]string{'█': "ok", '▓': "dropped", '▒': "delayed", '×': "the probe's own fault", '·': "no attempt"}

type laneRow struct{ name, text string }

// laneRows are the lines of a lane, one for each node.
func (a *analysis) laneRows(x axis, l *lane) []laneRow {
	byNode := map[uint16]*tally{}
	for i := range l.records {
		if r := &l.records[i]; r.intended >= x.from && r.intended < x.to {
			if byNode[r.node] == nil {
				byNode[r.node] = newTally(x.buckets)
			}
			byNode[r.node].add(x.bucket(r.intended), r)
		}
	}
	var rows []laneRow
	for node, n := range byNode {
		name := nodeText(a.nodes[node])
		if len(a.measured()) > 1 {
			name = l.Name + " " + name
		}
		var b strings.Builder
		for i := range n.attempts {
			switch {
			case n.attempts[i] == 0:
				b.WriteRune('·')
			case n.dropped[i] > 0:
				b.WriteRune('▓')
			case n.delayed[i] > 0:
				b.WriteRune('▒')
			case n.probe[i] > 0:
				b.WriteRune('×')
			default:
				b.WriteRune('█')
			}
		}
		rows = append(rows, laneRow{name, b.String()})
	}
	slices.SortFunc(rows, func(p, q laneRow) int { return cmp.Compare(p.name, q.name) })
	return rows
}

// ruler writes the seconds since zero above every tenth column.
func (x axis) ruler(zero time.Duration) string {
	text := []rune(strings.Repeat(" ", x.buckets+8))
	for i := range x.buckets {
		if at := x.start(i) - zero; i%10 == 2 {
			copy(text[i:], []rune(fmt.Sprintf("%d", int(at/time.Second))))
		}
	}
	return string(text)
}

// laneMarks writes what happened, each with a bar in its column: as many lines as it takes for no two to meet.
func (a *analysis) laneMarks(x axis) []string {
	type mark struct {
		column int
		text   string
	}
	var marks []mark
	for _, e := range a.events {
		if text := laneMark(a, e); text != "" && e.At >= x.from && e.At < x.to {
			marks = append(marks, mark{x.bucket(e.At), "|" + text})
		}
	}
	const most = 8
	var lines [][]rune
	left := 0
	for _, m := range marks {
		put := false
		for i := range lines {
			if len(lines[i]) < m.column {
				lines[i] = append(append(lines[i], []rune(strings.Repeat(" ", m.column-len(lines[i])))...), []rune(m.text+" ")...)
				put = true
				break
			}
		}
		switch {
		case put:
		case len(lines) == most:
			left++
		default:
			lines = append(lines, []rune(strings.Repeat(" ", m.column)+m.text+" "))
		}
	}
	var texts []string
	for _, line := range lines {
		texts = append(texts, string(line))
	}
	if left > 0 {
		texts = append(texts, fmt.Sprintf("… %s more", plural(left, "event")))
	}
	return texts
}

// laneMark is what an event is called in the drawing; empty for those that are left out.
func laneMark(a *analysis, e record.Event) string {
	switch body := e.Body.(type) {
	case record.Step:
		if body.State == "begin" {
			return e.Object
		}
	case record.Pod:
		if slices.Contains([]string{"ready", "terminating", "exited"}, body.State) && a.serves(podOf(e)) {
			return "pod on " + nodeOf(e) + " " + body.State
		}
	case record.Proxy:
		if slices.Contains([]string{"killed", "exited", "ready", "flushed", "restored"}, body.State) {
			return "proxy of " + e.Node + " " + body.State
		}
	case record.Membership:
		if a.measures(record.NewFrontend(body.Address, body.Port, body.Protocol)) {
			return "balancer: " + cmp.Or(strings.Join(body.Nodes, ", "), "no node")
		}
	}
	return ""
}

// serves reports whether a pod is behind a measured lane.
func (a *analysis) serves(pod string) bool {
	life := a.pods.byName[pod]
	return life != nil && slices.ContainsFunc(a.measured(), func(l *lane) bool { return life.serves(a.serviceOf(l)) })
}

// measures reports whether a frontend is the target of a measured lane.
func (a *analysis) measures(f record.Frontend) bool {
	return slices.ContainsFunc(a.measured(), func(l *lane) bool { return l.Frontend() == f })
}
