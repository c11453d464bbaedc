package compare

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/chart"
	"github.com/hitless/hitless/reports/page"
)

//go:embed page.html
var compareTemplate string

// pageContent is the data of the template of compare.html.
type pageContent struct {
	*Comparison
	Title     string
	Headline  string
	Notes     []string
	Rows      []row
	Kinds     []Change
	Timeline  *chart.Timeline
	Unit      string
	Most      int
	Data      page.Data
	Style     template.CSS
	Script    template.JS
	Width     int
	Left      int
	FirstName string
}

// row is a subject with its differences from the first.
type row struct {
	Subject  string
	Runs     int
	Verdicts string
	Metrics  []cell
}

type cell struct{ Value, Difference, Interval, Real string }

// page returns the data of the page of a comparison. subjects has the courses of its runs, in the same order.
func (c *Comparison) newContent(subjects [][]runCourse) *pageContent {
	p := &pageContent{Comparison: c, Title: analysis.TitleOf(c.Scenario, c.Command), Headline: capital(c.Sentence(c.Difference)), Kinds: c.Changes(),
		Style: template.CSS(page.Style), Script: template.JS(page.Script), Width: chart.Width, Left: chart.PlotLeft - 8, FirstName: c.Subjects[0].Subject}
	if c.Verdict == analysis.Invalid {
		p.Headline = "Not to be trusted: a run is invalid, or a seed has not one run of each subject."
		p.Notes = append(p.Notes, "measured all the same: "+c.Sentence(c.Difference))
	}
	for _, d := range c.Differences()[1:] {
		p.Notes = append(p.Notes, c.Sentence(d))
	}
	p.Rows = c.compareRows()
	p.Timeline, p.Most = c.comparedTimeline(subjects)
	p.Unit = "per second"
	if step := units.Seconds(p.Timeline.Axis.Step); step > 1 {
		p.Unit = "in each " + units.MsText(step*1e3)
	}
	p.Data = c.compareData(p.Timeline, subjects)
	return p
}

func (c *Comparison) compareRows() []row {
	values := [...]struct {
		of   func(Run) float64
		text func(float64) string
	}{
		{func(r Run) float64 { return float64(r.Dropped) }, plainText},
		{func(r Run) float64 { return r.WorstGapMs }, func(v float64) string {
			if v == 0 {
				return "none"
			}
			return signedMs(v)
		}},
	}
	var rows []row
	for i, s := range c.Subjects {
		row := row{Subject: s.Subject, Runs: len(s.Runs), Verdicts: verdicts(s.Runs)}
		differences := c.differencesOf(i)
		for k, v := range values {
			var all []float64
			for _, r := range s.Runs {
				all = append(all, v.of(r))
			}
			cell := cell{Value: v.text(median(all))}
			if least, most := slices.Min(all), slices.Max(all); least < most {
				cell.Value += " (" + v.text(least) + " to " + v.text(most) + ")"
			}
			if i > 0 {
				cell.Difference, cell.Interval, cell.Real = differences[k].texts()
			}
			row.Metrics = append(row.Metrics, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// texts returns the difference, its interval, and whether it is real, as text.
func (d Difference) texts() (estimate, interval, real string) {
	text := plainText
	if d.Metric != "dropped" {
		text = signedMs
	}
	sign := ""
	if d.Estimate > 0 {
		sign = "+"
	}
	real = "too few pairs"
	if d.Real != nil {
		real = map[bool]string{true: "real", false: "chance explains it"}[*d.Real]
	}
	if d.Real != nil && d.Estimate == 0 && d.Low == 0 && d.High == 0 {
		real = "none"
	}
	return sign + text(d.Estimate), text(d.Low) + " to " + text(d.High), real
}

func plainText(v float64) string {
	if v == float64(int(v)) {
		return units.Thousands(int(v))
	}
	return fmt.Sprintf("%.1f", v)
}

func signedMs(v float64) string {
	if v < 0 {
		return "-" + units.MsText(-v)
	}
	return units.MsText(v)
}

func (c *Comparison) compareData(t *chart.Timeline, subjects [][]runCourse) page.Data {
	d := page.Data{From: units.Seconds(t.Axis.From), To: units.Seconds(t.Axis.To), Step: units.Seconds(t.Axis.Step), Left: chart.PlotLeft, Width: chart.PlotWidth,
		Total: chart.Width, Rows: []page.DataRow{}, Events: []page.DataEvent{}}
	for _, row := range t.Rows {
		if row.Numbers != nil {
			d.Rows = append(d.Rows, page.DataRow{Name: row.Node + ", " + row.Name, Numbers: row.Numbers})
		}
	}
	for i, runs := range subjects {
		for _, r := range runs {
			for _, e := range r.events {
				if len(d.Events) < page.MaxEvents {
					d.Events = append(d.Events, page.DataEvent{At: units.Seconds(e.At), Text: fmt.Sprintf("%s, seed %d: %s", c.Subjects[i].Subject, r.Seed, chart.EventText(e))})
				}
			}
		}
	}
	return d
}

// pageOf is the path of a run's page, relative to the comparison's.
func pageOf(report string) string {
	return path.Join(path.Dir(filepath.ToSlash(report)), reports.PageFile)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func (c *Comparison) writePage(w io.Writer, subjects [][]runCourse) error {
	parsed, err := template.New("compare").Funcs(template.FuncMap{"thousands": units.Thousands, "ms": units.MsText, "pageOf": pageOf}).Parse(compareTemplate)
	if err != nil {
		return fmt.Errorf("reading the template of the comparison: %w", err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, c.newContent(subjects)); err != nil {
		return fmt.Errorf("filling the template of the comparison: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}
