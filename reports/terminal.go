package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// The terminal shows the beginning of long lists and says how much it left out; report.json and the page have it all.
const (
	terminalReasons = 6
	terminalSeconds = 30
	terminalOutages = 5
	terminalSlow    = 5
	barWidth        = 30
	leastWidth      = 40
	sparkMost       = 72
)

// Terminal is how a report is written as text.
type Terminal struct {
	Width   int  // letters in a line; 0 does not wrap
	Colour  bool // ANSI colours
	Verbose bool // numbers of each second and lane, the self-test and the hashes, too
}

// WriteTerminal is Terminal.Write without wrapping, colours and details.
func WriteTerminal(w io.Writer, r *analysis.Report, o record.Origin) error {
	return Terminal{}.Write(w, r, o)
}

// Write writes the verdict, the loss in one sentence, a line of blocks, the longest outages with their causes, and the command that repeats the run.
func (t Terminal) Write(w io.Writer, r *analysis.Report, o record.Origin) error {
	var b bytes.Buffer
	head, _, _ := strings.Cut(r.Heading(), " ")
	t.wrap(&b, r.Heading()+"  "+r.Title(), "", t.paint(head, r))
	t.wrap(&b, r.Headline(), "  ", "")
	if trust := trustText(r); trust != "" && !t.Verbose { // the details have it
		t.wrap(&b, trust, "  ", "")
	}
	for i, reason := range r.Notes() {
		if i == terminalReasons {
			t.wrap(&b, fmt.Sprintf("… %d more in report.json", len(r.Notes())-i), "  ", "")
			break
		}
		t.wrap(&b, reason, "  ", "")
	}
	t.writeSpark(&b, r)
	t.writeOutages(&b, r)
	for _, step := range r.NextSteps {
		t.wrap(&b, "next: "+step, "  ", "")
	}
	b.WriteByte('\n')
	if t.Verbose {
		writeDetails(&b, r, o)
	}
	if o.Command != "" {
		fmt.Fprintf(&b, "repeat with      %s\n", o.Command)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// trustText tells what a pass rests on; empty for other verdicts.
func trustText(r *analysis.Report) string {
	if r.Verdict != analysis.Pass {
		return ""
	}
	text := "self-test: " + r.ProofText()
	if r.Recovery != nil {
		text += "; recovery: " + r.Recovery.Text
	}
	return text
}

// paint is the verdict in its colour, empty without colours.
func (t Terminal) paint(text string, r *analysis.Report) string {
	if !t.Colour {
		return ""
	}
	return "\x1b[1;" + map[analysis.Verdict]string{analysis.Pass: "32", analysis.Fail: "31", analysis.Invalid: "33", analysis.Skipped: "36"}[r.Verdict] + "m" + text + "\x1b[0m"
}

// wrap writes a text in lines that fit, the first one with an indent and the others with a deeper one. painted stands for the first word.
func (t Terminal) wrap(b *bytes.Buffer, text, indent, painted string) {
	line, letters := indent, utf8.RuneCountInString(indent)
	next := indent + "  "
	for i, word := range strings.Split(units.Clipped(text), " ") {
		n := utf8.RuneCountInString(word)
		if i > 0 && t.Width > 0 && letters+1+n > max(t.Width, leastWidth)-1 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, letters = next, utf8.RuneCountInString(next)
		} else if i > 0 {
			line, letters = line+" ", letters+1
		}
		if i == 0 && painted != "" {
			word = painted
		}
		line, letters = line+word, letters+n
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// writeSpark draws the dropped connections in one line.
func (t Terminal) writeSpark(b *bytes.Buffer, r *analysis.Report) {
	length := units.MsText(r.Run.Duration * 1e3)
	width := sparkMost
	if t.Width > 0 {
		width = min(width, max(t.Width, leastWidth)-len("  dropped  ")-len(length)-3)
	}
	if spark := chart.Sparkline(r, width); spark != "" {
		fmt.Fprintf(b, "  dropped  %s  %s\n", spark, length)
	}
}

// writeOutages lists the longest outages in order of time. A cause that several have is written once.
func (t Terminal) writeOutages(b *bytes.Buffer, r *analysis.Report) {
	for _, g := range r.Causes()[:min(len(r.Causes()), terminalOutages)] {
		t.wrap(b, g.Text(), "  ", "")
	}
	shown, more := longest(r, terminalOutages)
	for _, o := range shown {
		t.wrap(b, fmt.Sprintf("%s %s on %s, %s of lane %s: %s", units.At(o.From), units.Range(o.LowerMs, o.UpperMs), analysis.NodeText(o.Node), analysis.ClassesText(o.Classes), o.Lane, o.Cause.Text), "    ", "")
	}
	if more > 0 {
		t.wrap(b, fmt.Sprintf("… %s more in report.json", units.Thousands(more)), "    ", "")
	}
}

// longest are at most n outages in order of time, and how many shorter ones are left out.
func longest(r *analysis.Report, n int) (shown []analysis.LaneOutage, more int) {
	shown = r.AllOutages()
	slices.SortStableFunc(shown, func(x, y analysis.LaneOutage) int { return cmp.Compare(y.UpperMs, x.UpperMs) })
	more = max(0, len(shown)-n)
	shown = shown[:len(shown)-more]
	slices.SortStableFunc(shown, func(x, y analysis.LaneOutage) int { return cmp.Compare(x.From, y.From) })
	return shown, more
}

// writeDetails writes what matters to those who develop hitless or compare runs.
func writeDetails(b *bytes.Buffer, r *analysis.Report, o record.Origin) {
	writeDrops(r, b)
	writeLanes(r, b)
	fmt.Fprintf(b, "detection floor  %s\n", r.FloorText())
	fmt.Fprintf(b, "self-test        %s\n", r.ProofText())
	fmt.Fprintf(b, "failures         %s\n", r.UnexplainedText())
	if len(r.Excused) > 0 {
		fmt.Fprintf(b, "excused          %s\n", r.ExcusedText())
	}
	if r.Recovery != nil {
		fmt.Fprintf(b, "recovery         %s\n", r.Recovery.Text)
	}
	fmt.Fprintf(b, "inputs sha256    %s\n", r.Run.InputsSha256)
	fmt.Fprintf(b, "history sha256   %s\n", o.HistorySha256)
}

func writeDrops(r *analysis.Report, b *bytes.Buffer) {
	seconds, most := r.LostSeconds()
	if len(seconds) == 0 {
		fmt.Fprintf(b, "dropped per second: none in %s\n\n", units.MsText(r.Run.Duration*1e3))
		return
	}
	b.WriteString("dropped per second\n")
	left := 0
	for i, s := range seconds {
		if i >= terminalSeconds {
			left += s.Dropped
			continue
		}
		fmt.Fprintf(b, "  +%6d s %8s  %s\n", s.Second, units.Thousands(s.Dropped), strings.Repeat("█", max(1, s.Dropped*barWidth/most)))
	}
	if more := len(seconds) - terminalSeconds; more > 0 {
		fmt.Fprintf(b, "  … %s more with %s dropped\n", units.Plural(more, "second"), units.Thousands(left))
	}
	b.WriteByte('\n')
}

func writeLanes(r *analysis.Report, b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "lane\tattempts\tok\tdelayed\tdropped\tp50\tp99\tmax\t")
	for _, lanes := range [...][]analysis.LaneReport{r.Lanes, r.Controls} {
		for _, l := range lanes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", l.Name, units.Thousands(l.Attempts), units.Thousands(l.OK), units.Thousands(l.Delayed),
				units.Thousands(l.Dropped), units.MsText(l.Latency.P50*1e3), units.MsText(l.Latency.P99*1e3), units.MsText(l.Latency.Max*1e3))
		}
	}
	t.Flush()
	b.WriteByte('\n')
	for _, text := range slowTexts(r, terminalSlow) {
		fmt.Fprintf(b, "%s\n\n", text)
	}
}

// slowTexts tells the latency of at most n measured lanes against their baseline.
func slowTexts(r *analysis.Report, n int) (texts []string) {
	for _, l := range r.Lanes {
		if l.Slow != nil && len(texts) < n {
			texts = append(texts, l.Slow.Text)
		}
	}
	return texts
}
