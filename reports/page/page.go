// Package page writes report.html: one file without outside references.
package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

//go:embed sections
var sections embed.FS

//go:embed page.css
var Style string

//go:embed page.js
var Script string

// The limits of the page. It says what it leaves out; report.json has everything.
const (
	maxOutages  = 60
	maxEvidence = 30
	MaxEvents   = 1000
	maxSeconds  = 1000
	maxLogLines = 10 // log lines for each outage; more would hide its events
)

// Write writes report.html: one file that needs no network and depends only on the history.
func Write(w io.Writer, r *analysis.Report, h *record.History) error {
	a, err := analysis.New(h)
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	origin, err := h.Origin()
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	return Render(a, w, r, origin, h)
}

// content is the data of the template.
type content struct {
	Report      *analysis.Report
	Origin      record.Origin
	Headline    string
	Notes       []string
	Worst       *analysis.LaneOutage // whose cause the head of the page tells; nil for none
	WorstID     int
	Floor       string
	Unexplained string
	Duration    string
	Snippet     string // the page as Markdown, in short
	Parameters  []setting
	Nodes       []string // of the paths, for the filter
	Classes     []string // of the outages, for the filter
	Chart       lossChart
	Timeline    *chart.Timeline
	Groups      []group
	MoreOutages int
	Seconds     []analysis.LostSecond
	MoreSeconds int
	Events      []analysis.ReportEvent
	MoreEvents  int
	Data        Data
	Style       template.CSS
	Script      template.JS
	Defs        template.HTML
	Width       int
	Left        int // right end of the labels
	PlotLeft    int
	PlotRight   int
	Middle      int
}

// watch is the scenario of the watches of clusters, which keep no logs.
const watch = "watch"

// Logs reports whether there are logs beside the page: those of the proxies of a cluster, unless the run ended before it kept them.
func (c *content) Logs() bool {
	return c.Report.Run.Nodes > 0 && c.Report.Early == nil && c.Report.Run.Scenario != watch
}

// Partial reports whether the run ended early, so that its numbers are grey.
func (c *content) Partial() bool { return c.Report.Early != nil }

type setting struct{ Key, Value string }

// Data is the input of the script that moves the linked cursor.
type Data struct {
	From   float64     `json:"from"` // seconds
	To     float64     `json:"to"`
	Step   float64     `json:"step"`
	Left   int         `json:"left"`
	Width  int         `json:"width"`
	Total  int         `json:"total"` // of the drawing
	Rows   []DataRow   `json:"rows"`
	Events []DataEvent `json:"events"`
}

type DataRow struct {
	Name    string           `json:"name"`
	Numbers map[string][]int `json:"numbers"`
}

type DataEvent struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// Render writes the page of an analysis and its report.
func Render(a *analysis.Analysis, w io.Writer, r *analysis.Report, o record.Origin, h *record.History) error {
	parsed, err := template.New("page.html").Funcs(template.FuncMap{"thousands": units.Thousands, "stepped": stepped, "ms": units.MsText, "at": units.At, "numbered": numbered,
		"node": analysis.NodeText, "classes": analysis.ClassesText, "milli": func(s float64) string { return units.MsText(s * 1e3) }}).ParseFS(sections, "sections/*.html")
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, newContent(a, r, o, h)); err != nil {
		return fmt.Errorf("filling the page's template: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func newContent(a *analysis.Analysis, r *analysis.Report, o record.Origin, h *record.History) *content {
	p := &content{Report: r, Origin: o, Headline: r.Headline(), Notes: r.Notes(), Floor: r.FloorText(), Unexplained: strings.ReplaceAll(r.UnexplainedText(), " %", "\u00a0%"),
		Duration: units.MsText(r.Run.Duration * 1e3), Timeline: chart.NewTimeline(a), Snippet: snippet(r, o), Style: template.CSS(Style),
		Script: template.JS(Script), Defs: Defs, Width: chart.Width, Left: chart.PlotLeft - 8,
		PlotLeft: chart.PlotLeft, PlotRight: chart.PlotLeft + chart.PlotWidth, Middle: chart.PlotLeft + chart.PlotWidth/2}
	p.Parameters = Settings(r)
	p.Nodes, p.Classes = filters(r)
	outages := listOutages(a, r)
	p.Worst, p.WorstID = worstOf(outages)
	p.Chart = newLossChart(a, p.Timeline.Axis, p.Worst)
	p.Groups, p.MoreOutages = groupsOf(a, r, outages, p.WorstID, p.Timeline.States, h)
	p.Seconds, _ = r.LostSeconds()
	if p.MoreSeconds = len(p.Seconds) - maxSeconds; p.MoreSeconds > 0 {
		p.Seconds = p.Seconds[:maxSeconds]
	}
	p.MoreEvents = len(r.Events) - MaxEvents
	for _, e := range r.Events[:min(len(r.Events), MaxEvents)] {
		e.Text = units.Clipped(e.Text)
		p.Events = append(p.Events, e)
	}
	p.Data = pageData(a, p.Timeline)
	return p
}

// Defs are the patterns that the drawings share: losses and endings are hatched, so that colour alone says nothing.
const Defs = template.HTML(`<svg class="defs" width="0" height="0" aria-hidden="true"><defs>` +
	`<pattern id="lost" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="lost-ground" width="5" height="5"/><line class="lost-line" x1="0" x2="0" y1="0" y2="5"/></pattern>` +
	`<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6"/><line class="hatch" x1="0" x2="0" y1="0" y2="6"/></pattern>` +
	`<pattern id="closed" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect class="closed-ground" width="5" height="5"/><line class="closed-line" x1="0" x2="0" y1="0" y2="5"/></pattern>` +
	`<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs></svg>`)

// numbered is a text in which each clause that an edge is about is followed by the edge's number.
func numbered(text string, edges []analysis.EdgeReport) template.HTML {
	var b strings.Builder
	for _, e := range edges {
		before, after, found := strings.Cut(text, e.Clause)
		if !found {
			continue
		}
		b.WriteString(template.HTMLEscapeString(before + e.Clause))
		fmt.Fprintf(&b, `<span class="no" title="step %d in the drawing">%d</span>`, e.Number, e.Number)
		text = after
	}
	b.WriteString(template.HTMLEscapeString(text))
	return template.HTML(b.String())
}

func pageData(a *analysis.Analysis, t *chart.Timeline) Data {
	d := Data{From: units.Seconds(t.Axis.From), To: units.Seconds(t.Axis.To), Step: units.Seconds(t.Axis.Step), Left: chart.PlotLeft, Width: chart.PlotWidth,
		Total: chart.Width, Rows: []DataRow{}, Events: []DataEvent{}}
	for _, row := range t.Rows {
		if row.Numbers != nil {
			d.Rows = append(d.Rows, DataRow{row.Name, row.Numbers})
		}
	}
	for _, e := range a.Events {
		if e.Kind() != record.KindLane && e.Kind() != record.KindPhase && e.At >= t.Axis.From && len(d.Events) < MaxEvents {
			d.Events = append(d.Events, DataEvent{units.Seconds(e.At), chart.EventText(e)})
		}
	}
	return d
}

// filters returns the nodes and classes that the reader can filter by.
func filters(r *analysis.Report) (nodes, classes []string) {
	seen := map[string]bool{}
	for _, l := range r.Lanes {
		for _, p := range l.Paths {
			if p.Node != "" && !slices.Contains(nodes, p.Node) {
				nodes = append(nodes, p.Node)
			}
		}
		for _, o := range l.Outages {
			for class := range o.Classes {
				seen[class] = true
			}
		}
	}
	for _, c := range record.Classes() {
		if seen[c.String()] {
			classes = append(classes, c.String())
		}
	}
	slices.Sort(nodes)
	return nodes, classes
}

// Settings are the parameters in the order of their keys.
func Settings(r *analysis.Report) []setting {
	var all []setting
	for _, key := range slices.Sorted(maps.Keys(r.Run.Parameters)) {
		all = append(all, setting{key, r.Run.Parameters[key]})
	}
	return all
}

var upstreamID = regexp.MustCompile(`\bk8s-([0-9]+)\b`)

// command is a command, or a flag to add to one, at the end of a step.
var command = regexp.MustCompile(`(?:\bhitless [a-z]+ .*|--[a-z-]+ \S+)$`)

// stepped is a step as a sentence. A command has no full stop, which its reader would copy.
func stepped(text string) template.HTML {
	at := command.FindStringIndex(text)
	if at == nil {
		return linked(text + ".")
	}
	return linked(text[:at[0]]) + "<code>" + template.HTML(template.HTMLEscapeString(text[at[0]:])) + "</code>"
}

// linked escapes a text and makes ids of the museum, such as k8s-85643, links to the upstream issues that they are named after.
func linked(text string) template.HTML {
	return template.HTML(upstreamID.ReplaceAllString(template.HTMLEscapeString(text), `<a href="https://github.com/kubernetes/kubernetes/issues/$1">k8s-$1</a>`))
}
