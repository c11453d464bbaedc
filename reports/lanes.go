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

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// lanesWidth is how many columns of time WriteLanes draws at most, so that it fits a terminal of 80 letters.
const lanesWidth = 58

// WriteLanes draws a run's scenario as lines of text: what was run, the time since the second in which the scenario began, the
// events, and a line for each path of each measured lane, a column for each second or more. A column shows the worst that its
// attempts came to. Below stands how many failed, and the cause of the worst gap.
func WriteLanes(w io.Writer, r *analysis.Report, h *record.History) error {
	a, err := analysis.New(h)
	if err != nil {
		return analysis.Unreadable(h, err)
	}
	_, err = io.WriteString(w, lanesText(a)+lossText(r))
	return err
}

// lossText is how many connections failed, and the worst gap with its cause, without instants: those of the drawing count from
// the scenario.
func lossText(r *analysis.Report) string {
	text := failuresText(r)
	switch {
	case r.Early != nil && r.Early.Interrupted():
		text = r.Heading() + "; partial results: " + text
	case r.Verdict == analysis.Invalid || r.Verdict == analysis.Skipped:
		text = strings.TrimSuffix(r.Headline(), ".") + "; partial results: " + text
	}
	return wrapped(text + ".")
}

// failuresText is lossText whatever the verdict.
func failuresText(r *analysis.Report) string {
	if r.Totals.Attempts == 0 {
		return analysis.NothingMeasured
	}
	failed := r.Totals.Dropped + r.Totals.Delayed
	text := fmt.Sprintf("%s of %s connections failed", units.Thousands(failed), units.Thousands(r.Totals.Attempts))
	if failed > 0 {
		text += " (" + analysis.ClassesText(r.Totals.ByClass) + ")"
	}
	if o := r.Worst(); o != nil {
		why, _, _ := strings.Cut(o.Cause.Text, ";")
		text += "; worst gap " + units.Range(o.LowerMs, o.UpperMs)
		if o.Node != "" {
			text += " on " + o.Node
		}
		text += ": " + why
	}
	return text
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

func lanesText(a *analysis.Analysis) string {
	scenario, begun := a.Phase("scenario")
	if !begun {
		return "the scenario of this run never began\n"
	}
	// Columns are whole seconds, so that a thinned record's bucket lies in one.
	zero := chart.FloorTo(scenario.From, record.BucketLength)
	x := lanesAxis(zero, scenario.To)
	var rows []laneRow
	for _, l := range a.Measured() {
		rows = append(rows, laneRows(a, x, l)...)
	}
	width := len("events")
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r.name))
	}
	var b bytes.Buffer
	line := func(name, text string) { fmt.Fprintf(&b, "%-*s  %s\n", width, name, strings.TrimRight(text, " ")) }
	fmt.Fprintf(&b, "%s, %s, seed %d\n", (&analysis.Report{Subject: a.Run.Subject}).SubjectText(), a.Run.Scenario, a.Run.Seed)
	line("+s", ruler(x, zero))
	for i, marks := range laneMarks(a, x) {
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
	line("", strings.Join(legend, "   ")+fmt.Sprintf("   each column %s", units.MsText(units.Millis(x.Step))))
	return b.String()
}

// lanesAxis has two columns before and at least one after a scenario, with the narrowest columns of which all fit.
func lanesAxis(zero, to time.Duration) chart.Axis {
	for most := lanesWidth; ; most-- {
		x := chart.Axis{Step: chart.StepFor(to-zero+5*time.Second, time.Second, most)}
		x.From = max(0, zero-2*x.Step)
		x.Buckets = int((to-x.From)/x.Step) + 2
		if x.To = x.Start(x.Buckets); x.Buckets <= lanesWidth {
			return x
		}
	}
}

// The letters of a path, and their order in the legend.
const laneLetters = "█▓▒×·"

var laneWords = map[rune]string{'█': "ok", '▓': "dropped", '▒': "delayed", '×': "the probe's own fault", '·': "no attempt"}

type laneRow struct{ name, text string }

// laneRows are the lines of a lane, one for each node.
func laneRows(a *analysis.Analysis, x chart.Axis, l *analysis.Lane) []laneRow {
	byNode := map[uint16]*chart.Tally{}
	for i := range l.Records {
		if r := &l.Records[i]; r.Intended >= x.From && r.Intended < x.To {
			if byNode[r.Node] == nil {
				byNode[r.Node] = chart.NewTally(x.Buckets)
			}
			byNode[r.Node].Add(x.Bucket(r.Intended), r)
		}
	}
	var rows []laneRow
	for node, n := range byNode {
		name := analysis.NodeText(a.Nodes[node])
		if len(a.Measured()) > 1 {
			name = l.Name + " " + name
		}
		var b strings.Builder
		for i := range n.Attempts {
			switch {
			case n.Attempts[i] == 0:
				b.WriteRune('·')
			case n.Dropped[i] > 0:
				b.WriteRune('▓')
			case n.Delayed[i] > 0:
				b.WriteRune('▒')
			case n.Probe[i] > 0:
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
func ruler(x chart.Axis, zero time.Duration) string {
	text := []rune(strings.Repeat(" ", x.Buckets+8))
	for i := range x.Buckets {
		if at := x.Start(i) - zero; i%10 == 2 {
			copy(text[i:], []rune(fmt.Sprintf("%d", int(at/time.Second))))
		}
	}
	return string(text)
}

// laneMarks writes what happened, each with a bar in its column: as many lines as it takes for no two to meet.
func laneMarks(a *analysis.Analysis, x chart.Axis) []string {
	type mark struct {
		column int
		text   string
	}
	var marks []mark
	for _, e := range a.Events {
		if text := laneMark(a, e); text != "" && e.At >= x.From && e.At < x.To {
			marks = append(marks, mark{x.Bucket(e.At), "|" + text})
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
		texts = append(texts, fmt.Sprintf("… %s more", units.Plural(left, "event")))
	}
	return texts
}

// laneMark is what an event is called in the drawing; empty for those that are left out.
func laneMark(a *analysis.Analysis, e record.Event) string {
	switch body := e.Body.(type) {
	case record.Step:
		if body.State == "begin" {
			return e.Object
		}
	case record.Pod:
		if slices.Contains([]string{"ready", "terminating", "exited"}, body.State) && a.Serves(analysis.PodOf(e)) {
			return "pod on " + analysis.NodeOf(e) + " " + body.State
		}
	case record.Proxy:
		if slices.Contains([]string{"killed", "exited", "ready", "flushed", "restored"}, body.State) {
			return "proxy of " + e.Node + " " + body.State
		}
	case record.Membership:
		if a.Measures(record.NewFrontend(body.Address, body.Port, body.Protocol)) {
			return "balancer: " + cmp.Or(strings.Join(body.Nodes, ", "), "no node")
		}
	}
	return ""
}
