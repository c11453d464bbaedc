package reports

import (
	"bytes"
	"fmt"
	"io"
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
// events, and a line for each path of each measured lane and each lane to a port without a Service, a column for each second or more. A
// column shows the worst that its attempts came to. The pods that answered a lane have lines too, if they are few. Below stands how many
// failed, and the cause of the worst gap.
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
	rows := allRows(a, x)
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
