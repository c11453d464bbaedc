package reports

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// The terminal shows the beginning of long tables and says how much it left out; report.json and the page have it all.
const (
	terminalReasons = 12
	terminalSeconds = 30
	terminalOutages = 12
	barWidth        = 30
)

// WriteTerminal writes the verdict, the drops per second, the outages with their causes and the hashes as plain text.
func WriteTerminal(w io.Writer, r *analysis.Report, o record.Origin) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", strings.ToUpper(string(r.Verdict)), r.Headline())
	reasons := r.Notes()
	for i, reason := range reasons {
		if i == terminalReasons {
			fmt.Fprintf(&b, "      … %d more\n", len(reasons)-i)
			break
		}
		fmt.Fprintf(&b, "      %s\n", reason)
	}
	b.WriteByte('\n')
	writeDrops(r, &b)
	writeOutages(r, &b)
	writeLanes(r, &b)
	fmt.Fprintf(&b, "detection floor  %s\n", r.FloorText())
	fmt.Fprintf(&b, "unexplained      %s\n", r.UnexplainedText())
	if len(r.Excused) > 0 {
		fmt.Fprintf(&b, "excused          %s\n", r.ExcusedText())
	}
	if r.Recovery != nil {
		fmt.Fprintf(&b, "recovery         %s\n", r.Recovery.Text)
	}
	fmt.Fprintf(&b, "inputs sha256    %s\n", r.Run.InputsSha256)
	fmt.Fprintf(&b, "history sha256   %s\n", o.HistorySha256)
	if o.Command != "" {
		fmt.Fprintf(&b, "repeat with      %s\n", o.Command)
	}
	_, err := w.Write(b.Bytes())
	return err
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

func writeOutages(r *analysis.Report, b *bytes.Buffer) {
	all := r.AllOutages()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "outages (%s)\n", units.Thousands(len(all)))
	for i, o := range all {
		if i == terminalOutages {
			fmt.Fprintf(b, "  … %d more\n", len(all)-i)
			break
		}
		fmt.Fprintf(b, "  %s  %s on %s: %s of lane %s\n      cause: %s\n", units.At(o.From), units.Range(o.LowerMs, o.UpperMs), analysis.NodeText(o.Node),
			analysis.ClassesText(o.Classes), o.Lane, o.Cause.Text)
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
	for _, text := range slowTexts(r) {
		fmt.Fprintf(b, "%s\n\n", text)
	}
}

// mostSlowTexts is the number of lanes whose latency a text tells.
const mostSlowTexts = 5

// slowTexts tells the latency of the measured lanes against their baseline.
func slowTexts(r *analysis.Report) (texts []string) {
	for _, l := range r.Lanes {
		if l.Slow != nil && len(texts) < mostSlowTexts {
			texts = append(texts, l.Slow.Text)
		}
	}
	return texts
}
