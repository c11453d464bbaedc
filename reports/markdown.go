package reports

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// A summary stays below 60 lines, so that it can stand in a job's summary beside others. With all of these it has 59.
const (
	summaryCauses  = 3
	summarySteps   = 4
	summaryReasons = 4
	summaryLanes   = 6
	summarySlow    = 3
	summaryOutages = 8
	sparkWidth     = 60
)

// WriteMarkdown writes summary.md: fewer than 60 lines, whatever the run.
func WriteMarkdown(w io.Writer, r *analysis.Report, o record.Origin) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## %s: %s\n\n%s\n\n", r.Heading(), Cell(r.Title()), Cell(r.Headline()))
	for _, g := range r.Causes()[:min(len(r.Causes()), summaryCauses)] {
		fmt.Fprintf(&b, "- %s\n", Cell(g.Text()))
	}
	for _, step := range r.NextSteps[:min(len(r.NextSteps), summarySteps)] {
		fmt.Fprintf(&b, "- %s\n", Cell(step))
	}
	reasons := r.Notes()
	for i, reason := range reasons {
		if i == summaryReasons {
			fmt.Fprintf(&b, "- … %d more\n", len(reasons)-i)
			break
		}
		fmt.Fprintf(&b, "- %s\n", Cell(reason))
	}
	if len(reasons)+len(r.Causes())+len(r.NextSteps) > 0 {
		b.WriteByte('\n')
	}
	markdownLanes(r, &b)
	if spark := chart.Sparkline(r, sparkWidth); spark != "" {
		fmt.Fprintf(&b, "Dropped over %s: `%s`\n\n", units.MsText(r.Run.Duration*1e3), spark)
	}
	markdownOutages(r, &b)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| detection floor | %s |\n| self-test | %s |\n| failures | %s |\n", r.FloorText(), r.ProofText(), r.UnexplainedText())
	if len(r.Excused) > 0 {
		fmt.Fprintf(&b, "| excused | %s |\n", r.ExcusedText())
	}
	if r.Recovery != nil {
		fmt.Fprintf(&b, "| recovery | %s |\n", Cell(r.Recovery.Text))
	}
	fmt.Fprintf(&b, "| seed, clock, kernel | %d, %s, %s |\n", r.Run.Seed, r.Run.Clock, r.Run.Kernel)
	fmt.Fprintf(&b, "| inputs sha256 | `%s` |\n| history sha256 | `%s` |\n", r.Run.InputsSha256, o.HistorySha256)
	if o.Command != "" {
		fmt.Fprintf(&b, "\nRepeat with:\n\n    %s\n", strings.ReplaceAll(o.Command, "\n", " "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func markdownLanes(r *analysis.Report, b *bytes.Buffer) {
	b.WriteString("| lane | attempts | ok | delayed | dropped | p50 | p99 | max |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for i, l := range r.Lanes {
		if i == summaryLanes {
			fmt.Fprintf(b, "| … %d more | | | | | | | |\n", len(r.Lanes)-i)
			break
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", Cell(l.Name), units.Thousands(l.Attempts), units.Thousands(l.OK),
			units.Thousands(l.Delayed), units.Thousands(l.Dropped), units.MsText(l.Latency.P50*1e3), units.MsText(l.Latency.P99*1e3), units.MsText(l.Latency.Max*1e3))
	}
	b.WriteByte('\n')
	slow := slowTexts(r, summarySlow)
	for _, text := range slow {
		fmt.Fprintf(b, "- %s.\n", Cell(text))
	}
	if len(slow) > 0 {
		b.WriteByte('\n')
	}
}

func markdownOutages(r *analysis.Report, b *bytes.Buffer) {
	outages, more := longest(r, summaryOutages)
	if len(outages) == 0 {
		return
	}
	b.WriteString("| outage at | bounds | node | failed | cause |\n|---:|---:|---|---|---|\n")
	for _, o := range outages {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", units.At(o.From), units.Range(o.LowerMs, o.UpperMs), Cell(analysis.NodeText(o.Node)),
			analysis.ClassesText(o.Classes), Cell(o.Cause.Text))
	}
	if more > 0 {
		fmt.Fprintf(b, "| … %d more | | | | |\n", more)
	}
	b.WriteByte('\n')
}

// Cell keeps a text from breaking the table that it stands in.
func Cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;").Replace(units.Clipped(text))
}
