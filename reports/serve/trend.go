package serve

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
)

// trend summarizes all runs with the same title that were made alike.
type trend struct {
	Title  string
	Made   string
	Latest run
	Rows   []trendRow
	Points []point
	Most   int
	From   string
	To     string
}

// trendRow is a version of a subject.
type trendRow struct {
	Subject, Version string
	Runs             int
	Verdicts         string
	Median, Worst    string // dropped, of the trusted runs; a dash without any
	Gap              string
	First, Last      string // dates
	trusted          []int
}

// point is a run in the drawing of dropped connections by date.
type point struct {
	X, Y   float64
	Class  string // the verdict
	Colour int    // of the subject and version: a row of the table
	Text   string
	Path   string
}

// The drawing, in user units.
const (
	chartWidth, chartHeight   = 900, 170
	chartLeft, chartRight     = 70, 20
	chartTop, chartBottom     = 14, 30
	colours                   = 8
	dateAndTime, dateAlone    = "2006-01-02 15:04", "2006-01-02"
	unknownTime, unknownShort = "unknown", "?"
)

// trends groups runs by their titles and by how they were made; versions are in the order of their first runs.
func trends(runs []run) []trend {
	type group struct{ title, made string }
	alike := map[group][]run{}
	var groups []group
	for _, r := range runs {
		g := group{r.Title, r.Made}
		if alike[g] == nil {
			groups = append(groups, g)
		}
		alike[g] = append(alike[g], r)
	}
	slices.SortFunc(groups, func(x, y group) int {
		return cmp.Or(strings.Compare(x.title, y.title), strings.Compare(x.made, y.made))
	})
	var all []trend
	for _, g := range groups {
		all = append(all, trendOf(g.title, alike[g]))
	}
	return all
}

func trendOf(title string, runs []run) trend {
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Path, b.Path)) })
	t := trend{Title: title, Made: runs[len(runs)-1].Made, Latest: runs[len(runs)-1]}
	verdicts := map[int]map[analysis.Verdict]int{}
	gaps := map[int]float64{}
	for _, r := range runs {
		i := slices.IndexFunc(t.Rows, func(x trendRow) bool { return x.Subject == r.Subject && x.Version == r.Version })
		if i < 0 {
			i = len(t.Rows)
			t.Rows = append(t.Rows, trendRow{Subject: r.Subject, Version: r.Version, First: dateOf(r.Started)})
			verdicts[i] = map[analysis.Verdict]int{}
		}
		row := &t.Rows[i]
		row.Runs++
		row.Last = dateOf(r.Started)
		verdicts[i][r.Verdict]++
		if r.Trusted() {
			row.trusted = append(row.trusted, r.Dropped)
			gaps[i] = max(gaps[i], r.WorstMs)
			t.Most = max(t.Most, r.Dropped)
		}
	}
	for i := range t.Rows {
		t.Rows[i].conclude(verdicts[i], gaps[i])
	}
	t.draw(runs)
	return t
}

func (r *trendRow) conclude(verdicts map[analysis.Verdict]int, gap float64) {
	var words []string
	for _, v := range []analysis.Verdict{analysis.Pass, analysis.Fail, analysis.Invalid, analysis.Skipped} {
		if n := verdicts[v]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, v))
		}
	}
	r.Verdicts = strings.Join(words, ", ")
	n := len(r.trusted)
	if n == 0 {
		r.Median, r.Worst, r.Gap = "–", "–", "–"
		return
	}
	slices.Sort(r.trusted)
	r.Median = strconv.FormatFloat(float64(r.trusted[(n-1)/2]+r.trusted[n/2])/2, 'f', -1, 64)
	r.Worst, r.Gap = strconv.Itoa(r.trusted[n-1]), gapText(gap)
}

// Colour is the colour of the row's points.
func (trendRow) Colour(row int) int { return row % colours }

// draw places the runs with a date. It draws nothing for fewer than two.
func (t *trend) draw(runs []run) {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.Started.IsZero() })
	if len(runs) < 2 {
		return // one point shows no trend
	}
	first, last := runs[0].Started, runs[len(runs)-1].Started
	t.From, t.To = first.UTC().Format(dateAndTime), last.UTC().Format(dateAndTime)
	for _, r := range runs {
		share := 0.5
		if last.After(first) {
			share = float64(r.Started.Sub(first)) / float64(last.Sub(first))
		}
		height := 0.0
		if t.Most > 0 && r.Trusted() {
			height = float64(r.Dropped) / float64(t.Most)
		}
		colour := slices.IndexFunc(t.Rows, func(x trendRow) bool { return x.Subject == r.Subject && x.Version == r.Version })
		t.Points = append(t.Points, point{X: round(chartLeft + share*(chartWidth-chartLeft-chartRight)),
			Y: round(chartHeight - chartBottom - height*(chartHeight-chartTop-chartBottom)), Class: string(r.Verdict), Colour: trendRow{}.Colour(colour),
			Text: fmt.Sprintf("%s, %s %s, seed %d: %s, %d dropped", r.Started.UTC().Format(dateAndTime), r.Subject, r.Version, r.Seed, r.Verdict, r.Dropped),
			Path: r.Path})
	}
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

func dateOf(at time.Time) string {
	if at.IsZero() {
		return unknownShort
	}
	return at.UTC().Format(dateAlone)
}

func timeOf(at time.Time) string {
	if at.IsZero() {
		return unknownTime
	}
	return at.UTC().Format(dateAndTime)
}

func gapText(ms float64) string {
	switch {
	case ms == 0:
		return "none"
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1e3)
}
