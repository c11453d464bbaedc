package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
)

// Facts say for each subject what its valid runs lost, in how many of them: the subjects that lost most come first.
func (c *Comparison) Facts() string {
	order := slices.Clone(c.Subjects)
	slices.SortStableFunc(order, func(a, b Subject) int { return b.lossy() - a.lossy() })
	var parts []string
	for _, s := range order {
		parts = append(parts, s.fact())
	}
	return strings.Join(parts, "; ") + "."
}

func (s Subject) lossy() (n int) {
	for _, r := range s.Runs {
		if r.valid() && r.Dropped+r.Delayed > 0 {
			n++
		}
	}
	return n
}

// fact is the part of Facts about one subject. Of runs that lost different numbers it has the median.
func (s Subject) fact() string {
	valid := 0
	var parts []string
	for _, r := range s.Runs {
		if r.valid() {
			valid++
		}
	}
	if valid == 0 {
		return fmt.Sprintf("%s has no valid run of %d", s.Subject, len(s.Runs))
	}
	for _, loss := range [...]struct {
		verb string
		of   func(Run) int
	}{{"dropped", func(r Run) int { return r.Dropped }}, {"delayed", func(r Run) int { return r.Delayed }}} {
		var lost []float64
		for _, r := range s.Runs {
			if n := loss.of(r); r.valid() && n > 0 {
				lost = append(lost, float64(n))
			}
		}
		if len(lost) == 0 {
			continue
		}
		about := ""
		if slices.Min(lost) < slices.Max(lost) {
			about = "about "
		}
		parts = append(parts, fmt.Sprintf("%s %s%s per run in %d of %s", loss.verb, about, units.Plural(int(median(lost)+0.5), "connection"), len(lost), units.Plural(valid, "run")))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%s dropped none in %s", s.Subject, units.Plural(valid, "run"))
	}
	return s.Subject + " " + strings.Join(parts, " and ")
}

// tooFew says how many pairs a measure lacks to tell a difference from chance; empty where they are enough.
func (m Measure) tooFew() string {
	if n := m.More + m.Less + m.Equal; m.Verdict == Unclear && n > 0 && n < leastPairs {
		return fmt.Sprintf("inconclusive: %s, need %d", units.Plural(n, "pair"), leastPairs)
	}
	return ""
}

// Cell is a run in the matrix of subjects and seeds.
type Cell struct {
	Verdict string
	Text    string
	Page    string // of the run
}

// Matrix has a row for each subject and a column for each seed; a subject without a run of a seed has an empty cell.
func (c *Comparison) Matrix() (seeds []int64, rows [][]Cell) {
	seeds, _ = c.rows()
	for _, s := range c.Subjects {
		row := make([]Cell, len(seeds))
		for _, r := range s.Runs {
			text := units.Thousands(r.Dropped)
			if r.Delayed > 0 {
				text += " + " + units.Thousands(r.Delayed) + " delayed"
			}
			if !r.valid() {
				text = unknown
			}
			row[slices.Index(seeds, r.Seed)] = Cell{string(r.Verdict), text, pageOf(r.Report)}
		}
		rows = append(rows, row)
	}
	return seeds, rows
}
