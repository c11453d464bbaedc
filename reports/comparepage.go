package reports

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
)

//go:embed html/compare.html
var compareTemplate string

// comparePage is what the template of compare.html shows.
type comparePage struct {
	*Comparison
	Title     string
	Headline  string
	Notes     []string
	Rows      []compareRow
	Kinds     []Change
	Timeline  *timeline
	Unit      string
	Most      int
	Data      pageData
	Style     template.CSS
	Script    template.JS
	Width     int
	Left      int
	FirstName string
}

// compareRow is a subject with its differences from the first.
type compareRow struct {
	Subject  string
	Runs     int
	Verdicts string
	Metrics  []compareCell
}

type compareCell struct{ Value, Difference, Interval, Real string }

// page computes the page of a comparison; subjects are the courses of its runs, in the same order.
func (c *Comparison) page(subjects [][]comparedCourse) *comparePage {
	p := &comparePage{Comparison: c, Title: TitleOf(c.Scenario, c.Command), Headline: capital(c.Sentence(c.Difference)), Kinds: c.Changes(),
		Style: template.CSS(pageStyle), Script: template.JS(pageScript), Width: drawingWidth, Left: plotLeft - 8, FirstName: c.Subjects[0].Subject}
	if c.Verdict == Invalid {
		p.Headline = "Not to be trusted: a run is invalid, or a seed has not one run of each subject."
		p.Notes = append(p.Notes, "measured all the same: "+c.Sentence(c.Difference))
	}
	for _, d := range c.Differences()[1:] {
		p.Notes = append(p.Notes, c.Sentence(d))
	}
	p.Rows = c.compareRows()
	p.Timeline, p.Most = c.comparedTimeline(subjects)
	p.Unit = "per second"
	if step := seconds(p.Timeline.axis.step); step > 1 {
		p.Unit = "in each " + msText(step*1e3)
	}
	p.Data = c.compareData(p.Timeline, subjects)
	return p
}

func (c *Comparison) compareRows() []compareRow {
	values := [...]struct {
		of   func(ComparedRun) float64
		text func(float64) string
	}{
		{func(r ComparedRun) float64 { return float64(r.Dropped) }, plainText},
		{func(r ComparedRun) float64 { return r.WorstGapMs }, func(v float64) string {
			if v == 0 {
				return "none"
			}
			return signedMs(v)
		}},
	}
	var rows []compareRow
	for i, s := range c.Subjects {
		row := compareRow{Subject: s.Subject, Runs: len(s.Runs), Verdicts: verdicts(s.Runs)}
		differences := c.differencesOf(i)
		for k, v := range values {
			var all []float64
			for _, r := range s.Runs {
				all = append(all, v.of(r))
			}
			cell := compareCell{Value: v.text(median(all))}
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

// texts are the difference, its interval, and whether it is real.
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
		return thousands(int(v))
	}
	return fmt.Sprintf("%.1f", v)
}

func signedMs(v float64) string {
	if v < 0 {
		return "-" + msText(-v)
	}
	return msText(v)
}

func (c *Comparison) compareData(t *timeline, subjects [][]comparedCourse) pageData {
	d := pageData{From: seconds(t.axis.from), To: seconds(t.axis.to), Step: seconds(t.axis.step), Left: plotLeft, Width: plotWidth,
		Total: drawingWidth, Rows: []dataRow{}, Events: []dataEvt{}}
	for _, row := range t.Rows {
		if row.Numbers != nil {
			d.Rows = append(d.Rows, dataRow{row.Node + ", " + row.Name, row.Numbers})
		}
	}
	for i, runs := range subjects {
		for _, r := range runs {
			for _, e := range r.events {
				if len(d.Events) < pageEvents {
					d.Events = append(d.Events, dataEvt{seconds(e.At), fmt.Sprintf("%s, seed %d: %s", c.Subjects[i].Subject, r.Seed, eventText(e))})
				}
			}
		}
	}
	return d
}

// pageOf is the path of a run's page, relative to the comparison's.
func pageOf(report string) string { return path.Join(path.Dir(filepath.ToSlash(report)), PageFile) }

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func (c *Comparison) writePage(w io.Writer, subjects [][]comparedCourse) error {
	parsed, err := template.New("compare").Funcs(template.FuncMap{"thousands": thousands, "ms": msText, "pageOf": pageOf}).Parse(compareTemplate)
	if err != nil {
		return fmt.Errorf("reading the template of the comparison: %w", err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, c.page(subjects)); err != nil {
		return fmt.Errorf("filling the template of the comparison: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}
