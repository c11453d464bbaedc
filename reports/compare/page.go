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
	Title    string
	Headline string
	Seeds    []int64
	Matrix   [][]Cell
	Notes    []string
	Rows     []row
	Kinds    []Change
	Recovery column
	Timeline *chart.Timeline
	Unit     string
	Most     int // attempts in one bucket of the drawing
	Lost     []stretch
	MoreLost int
	Data     page.Data
	Style    template.CSS
	Script   template.JS
	Defs     template.HTML
	Width    int
	Left     int
}

// row is a measure of a subject. The first row of a subject has its name, and is about all measures.
type row struct {
	Subject, Measure, Pairs, Reference, Value, Difference, Interval string
	Verdict                                                         Relation
}

// page returns the data of the page of a comparison. subjects has the courses of its runs, in the same order.
func (c *Comparison) newContent(subjects [][]runCourse) *pageContent {
	p := &pageContent{Comparison: c, Title: analysis.TitleOf(c.Scenario, c.Command), Headline: c.Facts(), Kinds: c.Changes(), Recovery: checked([]*Comparison{c}),
		Style: template.CSS(page.Style), Script: template.JS(page.Script), Defs: page.Defs, Width: chart.Width, Left: chart.PlotLeft - 8}
	p.Notes = append(slices.Clone(c.Reasons), c.notes()...)
	p.Seeds, p.Matrix = c.Matrix()
	p.Rows = c.compareRows()
	p.Timeline, p.Lost, p.Most = c.comparedTimeline(subjects)
	if p.MoreLost = len(p.Lost) - maxStretches; p.MoreLost > 0 {
		p.Lost = p.Lost[:maxStretches]
	}
	p.Unit = "per second"
	if step := units.Seconds(p.Timeline.Axis.Step); step > 1 {
		p.Unit = "in each " + units.MsText(step*1e3)
	}
	p.Data = c.compareData(p.Timeline, subjects)
	return p
}

func (c *Comparison) compareRows() (rows []row) {
	for _, d := range c.Differences {
		rows = append(rows, row{Subject: d.Subject, Measure: "all", Verdict: d.Verdict, Pairs: strings.Join(d.newTexts(), ", ")})
		subject := slices.IndexFunc(c.Subjects, func(s Subject) bool { return s.Subject == d.Subject })
		for _, m := range d.Measures {
			r := row{Measure: m.title(), Verdict: m.Verdict, Pairs: m.PairsText(), Reference: m.rangeText(c.Subjects[c.reference()].Runs), Value: m.rangeText(c.Subjects[max(0, subject)].Runs)}
			r.Difference, r.Interval = m.texts()
			rows = append(rows, r)
		}
	}
	return rows
}

// rangeText is the median of the valid runs, and the least and the most.
func (m Measure) rangeText(runs []Run) string {
	of := measures[m.of()]
	var all []float64
	for _, r := range runs {
		if r.valid() && of.known(r) {
			all = append(all, of.of(r))
		}
	}
	if len(all) == 0 {
		return unknown
	}
	text := of.text(median(all))
	if least, most := slices.Min(all), slices.Max(all); least < most {
		text += " (" + of.text(least) + " to " + of.text(most) + ")"
	}
	return text
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
	parsed, err := template.New("compare").Funcs(template.FuncMap{"thousands": units.Thousands, "ms": units.MsText, "pageOf": pageOf, "short": short, "kernel": kernelText,
		"outage": func(r Run) string { return (Measure{Measure: "outageSeconds"}).rangeText([]Run{r}) },
		"stuck":  func(r Run) string { return stuckText([]Run{r}) }}).Parse(compareTemplate)
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
