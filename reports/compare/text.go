package compare

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
)

// Sentence describes one difference of the comparison in one sentence.
func (c *Comparison) Sentence(d Difference) string {
	first, last := c.Subjects[0].Subject, c.Subjects[len(c.Subjects)-1].Subject
	pairs := len(c.pairs(len(c.Subjects) - 1))
	amount := func(v float64) string {
		if d.Metric == "dropped" {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return units.MsText(math.Abs(v))
	}
	bound := func(v float64) string {
		if v < 0 && d.Metric != "dropped" {
			return "-" + amount(v)
		}
		return amount(v)
	}
	what := "connections dropped"
	if d.Metric != "dropped" {
		what = "worst gap"
	}
	if pairs == 0 {
		return fmt.Sprintf("%s: %s and %s have no run with the same seed.", what, first, last)
	}
	text := fmt.Sprintf("%s: no difference between %s and %s in the median", what, first, last)
	switch {
	case d.Estimate > 0:
		text = fmt.Sprintf("%s: %s has %s more than %s in the median", what, last, amount(d.Estimate), first)
	case d.Estimate < 0:
		text = fmt.Sprintf("%s: %s has %s less than %s in the median", what, last, amount(math.Abs(d.Estimate)), first)
	}
	text += fmt.Sprintf(" of %s (95 %% interval %s to %s)", units.Plural(pairs, "pair"), bound(d.Low), bound(d.High))
	switch {
	case d.Real == nil:
		return text + fmt.Sprintf("; too few pairs to tell from chance, %d are needed.", leastPairs)
	case *d.Real:
		return text + "; the difference is real."
	}
	return text + "; chance explains it as well."
}

// rows returns a row for each seed, with the run of every subject.
func (c *Comparison) rows() (seeds []int64, cells map[int64][]string) {
	cells = map[int64][]string{}
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			if cells[r.Seed] == nil {
				cells[r.Seed] = slices.Repeat([]string{"–"}, len(c.Subjects))
				seeds = append(seeds, r.Seed)
			}
			cells[r.Seed][i] = fmt.Sprintf("%s, %s dropped, worst %s", r.Verdict, units.Thousands(r.Dropped), units.MsText(r.WorstGapMs))
		}
	}
	slices.Sort(seeds)
	return seeds, cells
}

// WriteTerminal writes the table of runs and the differences as plain text.
func WriteTerminal(w io.Writer, c *Comparison) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n\n", strings.ToUpper(string(c.Verdict)), c.Scenario)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "seed")
	for _, s := range c.Subjects {
		fmt.Fprint(t, "\t"+s.Subject)
	}
	fmt.Fprintln(t)
	seeds, cells := c.rows()
	for _, seed := range seeds {
		fmt.Fprintf(t, "%d\t%s\n", seed, strings.Join(cells[seed], "\t"))
	}
	t.Flush()
	b.WriteByte('\n')
	for _, d := range c.Differences() {
		fmt.Fprintln(&b, c.Sentence(d))
	}
	for _, text := range c.changeTexts() {
		fmt.Fprintln(&b, text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteMarkdown writes the table and the differences as Markdown, for the summary of a CI job.
func WriteMarkdown(w io.Writer, c *Comparison) error {
	const most = 32
	var b bytes.Buffer
	fmt.Fprintf(&b, "## hitless compare %s: %s\n\n", reports.Cell(c.Scenario), c.Verdict)
	for _, d := range c.Differences() {
		fmt.Fprintf(&b, "- %s\n", reports.Cell(c.Sentence(d)))
	}
	for _, text := range c.changeTexts() {
		fmt.Fprintf(&b, "- %s\n", reports.Cell(text))
	}
	b.WriteString("\n| seed |")
	for _, s := range c.Subjects {
		fmt.Fprintf(&b, " %s |", reports.Cell(s.Subject))
	}
	b.WriteString("\n|---:|" + strings.Repeat("---|", len(c.Subjects)) + "\n")
	seeds, cells := c.rows()
	for i, seed := range seeds {
		if i == most {
			fmt.Fprintf(&b, "\n… %d more\n", len(seeds)-i)
			break
		}
		fmt.Fprintf(&b, "| %d | %s |\n", seed, strings.Join(cells[seed], " | "))
	}
	_, err := w.Write(b.Bytes())
	return err
}
