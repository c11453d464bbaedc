package compare

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
)

// cell is a run in a few words.
func (r Run) cell() string {
	text := fmt.Sprintf("%s, %s dropped", r.Verdict, units.Thousands(r.Dropped))
	if r.Delayed > 0 {
		text += fmt.Sprintf(", %s delayed", units.Thousands(r.Delayed))
	}
	text += ", worst " + units.MsText(r.WorstGapMs)
	if r.NotFollowed != nil && *r.NotFollowed > 0 {
		text += fmt.Sprintf(", %s did not follow", map[bool]string{true: "1 proxy", false: units.Thousands(*r.NotFollowed) + " proxies"}[*r.NotFollowed == 1])
	}
	return text
}

// rows returns a row for each seed, with the run of every subject.
func (c *Comparison) rows() (seeds []int64, cells map[int64][]string) {
	cells = map[int64][]string{}
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			if cells[r.Seed] == nil {
				cells[r.Seed] = slices.Repeat([]string{unknown}, len(c.Subjects))
				seeds = append(seeds, r.Seed)
			}
			cells[r.Seed][i] = r.cell()
		}
	}
	slices.Sort(seeds)
	return seeds, cells
}

// notes are sentences about what was compared.
func (c *Comparison) notes() (notes []string) {
	var own []string
	for _, s := range c.Subjects {
		own = append(own, fmt.Sprintf("%s %s (%s)", s.Subject, s.Verdict, verdicts(s.Runs)))
	}
	notes = append(notes, "By its own runs: "+strings.Join(own, ", ")+".")
	if c.Budget != nil {
		notes = append(notes, fmt.Sprintf("Budget of the runs: %s dropped, %s delayed and %s.", units.Thousands(c.Budget.Dropped), units.Thousands(c.Budget.Delayed),
			units.Plural(len(c.Budget.Rules), "rule")))
	}
	if text := c.originText(); text != "" {
		notes = append(notes, capital(text)+".")
	}
	if unlike := c.unlike(); c.Mixed && len(unlike) > 0 {
		notes = append(notes, "Such runs are compared on request (--mixed).")
	}
	for _, d := range c.Differences {
		if len(d.Measures) < len(measures) {
			return append(notes, "A measure that a run does not have is not compared.")
		}
	}
	return notes
}

// Next names the report that explains the first loss: of a subject that is worse or fails, else of any. It is empty when no valid
// run lost connections.
func (c *Comparison) Next() string {
	best, found, of := -1, Run{}, ""
	for i, s := range c.Subjects {
		for _, r := range s.Runs {
			if rank := c.blame(i); r.valid() && r.Dropped+r.Delayed > 0 && rank > best {
				best, found, of = rank, r, s.Subject
			}
		}
	}
	if best < 0 {
		return ""
	}
	return fmt.Sprintf("the causes of the losses of %s with seed %d are in %s", of, found.Seed, path.Join(path.Dir(found.Report), reports.PageFile))
}

// blame ranks a subject by how much it has to do with the verdict: worse than the reference, then failed by its own runs, then any other.
func (c *Comparison) blame(subject int) int {
	s := c.Subjects[subject]
	switch worse := slices.ContainsFunc(c.Differences, func(d Difference) bool { return d.Subject == s.Subject && d.Verdict == Worse }); {
	case worse:
		return 3
	case s.Verdict != analysis.Pass && s.Subject != c.Reference:
		return 2
	case s.Verdict != analysis.Pass:
		return 1
	}
	return 0
}

// measureTitles are the titles of measureTable, except that of the subject.
var measureTitles = []string{"measure", "verdict", "runs", "median difference", "95 % interval"}

// measureTable has a line for each subject and measure.
func (c *Comparison) measureTable() (rows [][]string) {
	for _, d := range c.Differences {
		rows = append(rows, []string{d.Subject, "all", string(d.Verdict), strings.Join(d.newTexts(), ", "), "", ""})
		for _, m := range d.Measures {
			estimate, interval := m.texts()
			rows = append(rows, []string{"", m.title(), string(m.Verdict), m.PairsText(), estimate, interval})
		}
	}
	return rows
}

// WriteTerminal writes the verdict with its reasons, the table of runs and the differences as plain text.
func WriteTerminal(w io.Writer, c *Comparison) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n  %s\n", strings.ToUpper(string(c.Verdict)), c.Scenario, c.Facts())
	for _, reason := range c.Reasons {
		fmt.Fprintf(&b, "  %s\n", reason)
	}
	b.WriteByte('\n')
	runs := [][]string{append([]string{"seed"}, c.titles()...)}
	seeds, cells := c.rows()
	for _, seed := range seeds {
		runs = append(runs, append([]string{fmt.Sprint(seed)}, cells[seed]...))
	}
	writeTable(&b, runs)
	if len(c.Differences) > 0 {
		b.WriteByte('\n')
		writeTable(&b, append([][]string{append([]string{"against " + c.Reference}, measureTitles...)}, c.measureTable()...))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(append(c.changeTexts(), c.notes()...), "\n"))
	if next := c.Next(); next != "" {
		fmt.Fprintf(&b, "next: %s\n", next)
	}
	if c.Command != "" {
		fmt.Fprintf(&b, "\nrepeat with      %s\n", c.Command)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeTable writes rows in columns, without spaces at the ends of lines.
func writeTable(b *bytes.Buffer, rows [][]string) {
	var all bytes.Buffer
	t := tabwriter.NewWriter(&all, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	t.Flush()
	for line := range strings.Lines(all.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// titles are the subjects, with the reference marked.
func (c *Comparison) titles() (titles []string) {
	for i, s := range c.Subjects {
		title := s.Subject
		if i == c.reference() {
			title += " (reference)"
		}
		titles = append(titles, title)
	}
	return titles
}

// WriteMarkdown writes the same as Markdown, for the summary of a CI job.
func WriteMarkdown(w io.Writer, c *Comparison) error {
	const most = 32
	var b bytes.Buffer
	fmt.Fprintf(&b, "## hitless compare %s: %s\n\n", reports.Cell(c.Scenario), c.Verdict)
	fmt.Fprintf(&b, "%s\n\n", reports.Cell(c.Facts()))
	for _, text := range append(slices.Clone(c.Reasons), c.changeTexts()...) {
		fmt.Fprintf(&b, "- %s\n", reports.Cell(text))
	}
	if len(c.Differences) > 0 {
		b.WriteByte('\n')
		writeRow(&b, append([]string{"against " + c.Reference}, measureTitles...))
		b.WriteString("|---|---|---|---|---:|---|\n")
		for _, row := range c.measureTable() {
			writeRow(&b, row)
		}
	}
	b.WriteByte('\n')
	writeRow(&b, append([]string{"seed"}, c.titles()...))
	b.WriteString("|---:|" + strings.Repeat("---|", len(c.Subjects)) + "\n")
	seeds, cells := c.rows()
	for i, seed := range seeds {
		if i == most {
			fmt.Fprintf(&b, "\n… %d more\n", len(seeds)-i)
			break
		}
		writeRow(&b, append([]string{fmt.Sprint(seed)}, cells[seed]...))
	}
	b.WriteByte('\n')
	for _, note := range c.notes() {
		fmt.Fprintf(&b, "- %s\n", reports.Cell(note))
	}
	if next := c.Next(); next != "" {
		fmt.Fprintf(&b, "\nNext: %s.\n", next)
	}
	if c.Command != "" {
		fmt.Fprintf(&b, "\nRepeat with `%s`\n", c.Command)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func writeRow(b *bytes.Buffer, cells []string) {
	for i, cell := range cells {
		if cells[i] = reports.Cell(cell); cell == "" {
			cells[i] = " "
		}
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
