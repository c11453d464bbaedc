package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
)

// versioned is any version of compare.json. Version 1 has the difference of the last subject from the first, which is computed again.
type versioned struct {
	Comparison
	Difference json.RawMessage `json:"difference,omitempty"`
}

// Read reads a compare.json of this version or of version 1. All verdicts are computed again from the runs.
func Read(ctx context.Context, file string) (*Comparison, error) {
	data, err := input.Read(ctx, file, input.ReportBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a comparison: %w", err)
	}
	var read versioned
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, fmt.Errorf("reading %s: %w; give a compare.json of `hitless compare`", file, err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("reading %s: more follows after its end; give a compare.json of `hitless compare`", file)
	}
	c := &read.Comparison
	if c.SchemaVersion != Version && c.SchemaVersion != 1 || len(c.Subjects) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %s; this program reads the versions 1 and %d of `hitless compare`",
			file, c.SchemaVersion, units.Plural(len(c.Subjects), "subject"), Version)
	}
	for _, s := range c.Subjects {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("reading %s: the subject %q has no run; `hitless compare` makes it again", file, s.Subject)
		}
	}
	if c.SchemaVersion == 1 {
		c.SchemaVersion, c.Reference = Version, c.Subjects[0].Subject
	}
	if !slices.ContainsFunc(c.Subjects, func(s Subject) bool { return s.Subject == c.Reference }) {
		return nil, fmt.Errorf("reading %s: its reference %q is none of its subjects; `hitless compare` makes it again", file, c.Reference)
	}
	c.judge()
	return c, nil
}

// WriteResults writes comparisons as one Markdown table with a row for each subject: the verdicts of its runs, and of the valid ones
// the median and maximum of the dropped and delayed connections, and the worst gap.
func WriteResults(w io.Writer, all []*Comparison) error {
	var b bytes.Buffer
	recovery := checked(all)
	b.WriteString("| scenario | subject | runs | verdicts | dropped, median (most) | delayed, median (most) | worst gap |" + recovery.text(" "+notFollowed+" |") + "\n")
	b.WriteString("|---|---|---:|---|---:|---:|---:|" + recovery.text("---:|") + "\n")
	for _, c := range all {
		for _, s := range c.Subjects {
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s |%s\n", reports.Cell(analysis.TitleOf(c.Scenario, c.Command)), reports.Cell(s.Subject), len(s.Runs), verdicts(s.Runs),
				medianAndMost(s.Runs, func(r Run) int { return r.Dropped }),
				medianAndMost(s.Runs, func(r Run) int { return r.Delayed }), worstGap(s.Runs), recovery.text(" "+stuckText(s.Runs)+" |"))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteRuns writes comparisons as one Markdown table with a row for each run: its verdict, its losses by class, and the hash of its
// history, which a repetition must have.
func WriteRuns(w io.Writer, all []*Comparison) error {
	var b bytes.Buffer
	recovery := checked(all)
	b.WriteString("| scenario | subject | verdict | attempts | dropped | delayed | failures by class | worst gap |" + recovery.text(" "+notFollowed+" |") + " seed | history |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---|---:|" + recovery.text("---:|") + "---:|---|\n")
	for _, c := range all {
		for _, s := range c.Subjects {
			for _, r := range s.Runs {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |%s %d | `%.8s` |\n", reports.Cell(disturbance(c)), reports.Cell(s.Subject), r.Verdict,
					units.Thousands(r.Attempts), units.Thousands(r.Dropped), units.Thousands(r.Delayed), reports.Cell(byClass(r)), worstGap([]Run{r}),
					recovery.text(" "+stuckText([]Run{r})+" |"), r.Seed, r.HistorySha256)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// notFollowed is the title of the column with the number of proxies that did not follow the recovery check.
const notFollowed = "did not follow"

// column is a column of a table that may be left out.
type column bool

func (c column) text(text string) string {
	if !c {
		return ""
	}
	return text
}

// checked reports whether a run has a recovery check.
func checked(all []*Comparison) column {
	for _, c := range all {
		for _, s := range c.Subjects {
			if slices.ContainsFunc(s.Runs, func(r Run) bool { return r.NotFollowed != nil }) {
				return true
			}
		}
	}
	return false
}

// stuckText is the largest number of proxies that did not follow in one run.
func stuckText(runs []Run) string {
	most, known := 0, false
	for _, r := range runs {
		if r.NotFollowed != nil {
			most, known = max(most, *r.NotFollowed), true
		}
	}
	if !known {
		return "not checked"
	}
	return units.Thousands(most)
}

// disturbance is the title of a comparison without the parameters baseline and settle.
func disturbance(c *Comparison) string {
	changed := slices.DeleteFunc(analysis.Changed(c.Command), func(s string) bool {
		return strings.HasPrefix(s, "baseline=") || strings.HasPrefix(s, "settle=")
	})
	return strings.Join(append([]string{c.Scenario}, changed...), " ")
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

// verdicts counts the verdicts.
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

// unknown stands for a number that no valid run has.
const unknown = "–"

// medianAndMost is about the valid runs: the zeros of the others are no measurements.
func medianAndMost(runs []Run, value func(Run) int) string {
	var all []float64
	for _, r := range valid(runs) {
		all = append(all, float64(value(r)))
	}
	if len(all) == 0 {
		return unknown
	}
	return strconv.FormatFloat(median(all), 'f', -1, 64) + fmt.Sprintf(" (%.0f)", slices.Max(all))
}

// worstGap is about the valid runs.
func worstGap(runs []Run) string {
	trusted := valid(runs)
	if len(trusted) == 0 {
		return unknown
	}
	worst := 0.0
	for _, r := range trusted {
		worst = max(worst, r.WorstGapMs)
	}
	if worst == 0 {
		return "none"
	}
	return units.MsText(worst)
}
