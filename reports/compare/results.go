package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
)

// Read reads a compare.json.
func Read(ctx context.Context, file string) (*Comparison, error) {
	data, err := input.Read(ctx, file, input.ReportBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a comparison: %w", err)
	}
	var c Comparison
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return nil, fmt.Errorf("reading %s: %w; give a compare.json of `hitless compare`", file, err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("reading %s: more follows after its end; give a compare.json of `hitless compare`", file)
	}
	if c.SchemaVersion != Version || len(c.Subjects) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %s; this program reads version %d of `hitless compare`",
			file, c.SchemaVersion, units.Plural(len(c.Subjects), "subject"), Version)
	}
	for _, s := range c.Subjects {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("reading %s: the subject %q has no run; `hitless compare` makes it again", file, s.Subject)
		}
	}
	return &c, nil
}

// WriteResults writes comparisons as one Markdown table with a row for each subject: the verdicts of its runs, and the median and
// maximum of their dropped and delayed connections.
func WriteResults(w io.Writer, all []*Comparison) error {
	var b bytes.Buffer
	b.WriteString("| scenario | subject | runs | verdicts | dropped, median (most) | delayed, median (most) | worst gap |\n")
	b.WriteString("|---|---|---:|---|---:|---:|---:|\n")
	for _, c := range all {
		for _, s := range c.Subjects {
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s |\n", reports.Cell(analysis.TitleOf(c.Scenario, c.Command)), reports.Cell(s.Subject), len(s.Runs), verdicts(s.Runs),
				medianAndMost(s.Runs, func(r Run) int { return r.Dropped }),
				medianAndMost(s.Runs, func(r Run) int { return r.Delayed }), worstGap(s.Runs))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteRuns writes comparisons as one Markdown table with a row for each run: its verdict, its losses by class, and the hash of its
// history, which a repetition must have.
func WriteRuns(w io.Writer, all []*Comparison) error {
	var b bytes.Buffer
	b.WriteString("| scenario | subject | verdict | attempts | dropped | delayed | failures by class | worst gap | seed | history |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---|---:|---:|---|\n")
	for _, c := range all {
		for _, s := range c.Subjects {
			for _, r := range s.Runs {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %d | `%.8s` |\n", reports.Cell(disturbance(c)), reports.Cell(s.Subject), r.Verdict,
					units.Thousands(r.Attempts), units.Thousands(r.Dropped), units.Thousands(r.Delayed), reports.Cell(byClass(r)), worstGap([]Run{r}), r.Seed, r.HistorySha256)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// disturbance is the title of a comparison without the parameters baseline and settle.
func disturbance(c *Comparison) string {
	words := strings.Fields(analysis.TitleOf(c.Scenario, c.Command))
	return strings.Join(slices.DeleteFunc(words, func(s string) bool {
		return strings.HasPrefix(s, "baseline=") || strings.HasPrefix(s, "settle=")
	}), " ")
}

// byClass counts the failures of a run by their class.
func byClass(r Run) string {
	counted := map[string]int{}
	for _, f := range r.Failures {
		counted[f.Class] += f.Connections
	}
	var words []string
	for _, class := range slices.Sorted(maps.Keys(counted)) {
		words = append(words, class+" "+units.Thousands(counted[class]))
	}
	return strings.Join(words, ", ")
}

// verdicts counts the verdicts, the worst first.
func verdicts(runs []Run) string {
	var words []string
	for _, v := range []analysis.Verdict{analysis.Pass, analysis.Fail, analysis.Invalid, analysis.Skipped} {
		n := 0
		for _, r := range runs {
			if r.Verdict == v {
				n++
			}
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, v))
		}
	}
	return strings.Join(words, ", ")
}

func medianAndMost(runs []Run, value func(Run) int) string {
	var all []float64
	for _, r := range runs {
		all = append(all, float64(value(r)))
	}
	return fmt.Sprintf("%.0f (%.0f)", median(all), slices.Max(all))
}

func worstGap(runs []Run) string {
	worst := 0.0
	for _, r := range runs {
		worst = max(worst, r.WorstGapMs)
	}
	if worst == 0 {
		return "none"
	}
	return units.MsText(worst)
}
