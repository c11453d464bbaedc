package reports

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

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
func WriteTerminal(w io.Writer, r *Report, o record.Origin) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", strings.ToUpper(string(r.Verdict)), r.headline())
	reasons := r.notes()
	for i, reason := range reasons {
		if i == terminalReasons {
			fmt.Fprintf(&b, "      … %d more\n", len(reasons)-i)
			break
		}
		fmt.Fprintf(&b, "      %s\n", reason)
	}
	b.WriteByte('\n')
	r.terminalDrops(&b)
	r.terminalOutages(&b)
	r.terminalLanes(&b)
	fmt.Fprintf(&b, "detection floor  %s\n", r.floorText())
	fmt.Fprintf(&b, "unexplained      %s\n", r.unexplainedText())
	fmt.Fprintf(&b, "inputs sha256    %s\n", r.Run.InputsSha256)
	fmt.Fprintf(&b, "history sha256   %s\n", o.HistorySha256)
	if o.Command != "" {
		fmt.Fprintf(&b, "repeat with      %s\n", o.Command)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// bucket is a second with dropped connections.
type bucket struct{ Second, Dropped int }

// drops lists the seconds that dropped anything on any measured lane.
func (r *Report) drops() (seconds []bucket, most int) {
	for i := 0; ; i++ {
		sum, more := 0, false
		for _, l := range r.Lanes {
			if i < len(l.DroppedPerSecond) {
				sum, more = sum+l.DroppedPerSecond[i], true
			}
		}
		if !more {
			return seconds, most
		}
		if sum > 0 {
			seconds, most = append(seconds, bucket{i, sum}), max(most, sum)
		}
	}
}

func (r *Report) terminalDrops(b *bytes.Buffer) {
	seconds, most := r.drops()
	if len(seconds) == 0 {
		fmt.Fprintf(b, "dropped per second: none in %s\n\n", msText(r.Run.Duration*1e3))
		return
	}
	b.WriteString("dropped per second\n")
	left := 0
	for i, s := range seconds {
		if i >= terminalSeconds {
			left += s.Dropped
			continue
		}
		fmt.Fprintf(b, "  +%6d s %8s  %s\n", s.Second, thousands(s.Dropped), strings.Repeat("█", max(1, s.Dropped*barWidth/most)))
	}
	if more := len(seconds) - terminalSeconds; more > 0 {
		fmt.Fprintf(b, "  … %s more with %s dropped\n", plural(more, "second"), thousands(left))
	}
	b.WriteByte('\n')
}

func (r *Report) terminalOutages(b *bytes.Buffer) {
	all := r.allOutages()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "outages (%s)\n", thousands(len(all)))
	for i, o := range all {
		if i == terminalOutages {
			fmt.Fprintf(b, "  … %d more\n", len(all)-i)
			break
		}
		fmt.Fprintf(b, "  %s  %s on %s: %s of lane %s\n      cause: %s\n", atText(o.From), rangeText(o.LowerMs, o.UpperMs), nodeText(o.Node),
			classesText(o.Classes), o.lane, o.Cause.Text)
	}
	b.WriteByte('\n')
}

func (r *Report) terminalLanes(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "lane\tattempts\tok\tdelayed\tdropped\tp50\tp99\tmax\t")
	for _, lanes := range [...][]LaneReport{r.Lanes, r.Controls} {
		for _, l := range lanes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", l.Name, thousands(l.Attempts), thousands(l.OK), thousands(l.Delayed),
				thousands(l.Dropped), msText(l.Latency.P50*1e3), msText(l.Latency.P99*1e3), msText(l.Latency.Max*1e3))
		}
	}
	t.Flush()
	b.WriteByte('\n')
}

// laneOutage is an outage with the lane that saw it.
type laneOutage struct {
	lane string
	OutageReport
}

// allOutages lists the outages of the measured lanes.
func (r *Report) allOutages() []laneOutage {
	var all []laneOutage
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			all = append(all, laneOutage{l.Name, o})
		}
	}
	return all
}

func nodeText(node string) string {
	if node == "" {
		return "no node"
	}
	return node
}

func (r *Report) floorText() string {
	if r.DetectionFloor.Ms == nil {
		return "not proved"
	}
	return fmt.Sprintf("%s (%d of %d known faults found)", msText(*r.DetectionFloor.Ms), len(r.DetectionFloor.Found), len(r.DetectionFloor.Injected))
}

func (r *Report) unexplainedText() string {
	failed := r.Totals.Dropped + r.Totals.Delayed
	if failed == 0 {
		return "nothing to explain"
	}
	return fmt.Sprintf("%s of %s failed connections (%.1f %%)", thousands(r.Unexplained.Count), thousands(failed), r.Unexplained.Share*100)
}
