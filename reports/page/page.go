// Package page writes report.html: one file without outside references.
package page

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

//go:embed page.html
var htmlTemplate string

//go:embed page.css
var Style string

//go:embed page.js
var Script string

// The limits of the page. It says what it leaves out; report.json has everything.
const (
	maxOutages  = 100
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
	Floor       string
	Unexplained string
	WorstGap    string
	Duration    string
	Parameters  []setting
	Nodes       []string // of the paths, for the filter
	Classes     []string // of the outages, for the filter
	Chart       lossChart
	Timeline    *chart.Timeline
	Outages     []outage
	MoreOutages int
	Seconds     []analysis.LostSecond
	MoreSeconds int
	Events      []analysis.ReportEvent
	MoreEvents  int
	Data        Data
	Style       template.CSS
	Script      template.JS
	Width       int
	Left        int // right end of the labels
	PlotLeft    int
	PlotRight   int
	Middle      int
}

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

// outage is an outage with its evidence.
type outage struct {
	analysis.LaneOutage
	found    *analysis.Outage
	ID       int
	At       string
	Bounds   string
	Failed   string
	Evidence []evidence
	Kernel   *analysis.KernelView
	Choices  []analysis.ChoiceRow
	Seen     []seenRow
	MoreSeen int
	Unseen   int // failed attempts that Seen leaves out
	More     int
	Strip    []chart.Area
	Ticks    []chart.Tick
}

// OnPath names the path.
func (p outage) OnPath() string { return p.Lane + " over " + analysis.NodeText(p.Node) }

// ClassWords are the classes of the outage's failures, separated by blanks.
func (p outage) ClassWords() string {
	return strings.Join(slices.Sorted(maps.Keys(p.Classes)), " ")
}

type evidence struct {
	Relative string
	At       string
	Kind     record.Kind
	Node     string
	Text     string
	Same     bool // on the outage's own node
}

func Render(a *analysis.Analysis, w io.Writer, r *analysis.Report, o record.Origin, h *record.History) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"thousands": units.Thousands, "ms": units.MsText, "at": units.At,
		"node": analysis.NodeText, "classes": analysis.ClassesText, "milli": func(s float64) string { return units.MsText(s * 1e3) }}).Parse(htmlTemplate)
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}
	var b bytes.Buffer
	p := newContent(a, r, o)
	addSamples(a, h, p.Outages)
	if err := parsed.Execute(&b, p); err != nil {
		return fmt.Errorf("filling the page's template: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func newContent(a *analysis.Analysis, r *analysis.Report, o record.Origin) *content {
	p := &content{Report: r, Origin: o, Headline: r.Headline(), Notes: r.Notes(), Floor: r.FloorText(), Unexplained: strings.ReplaceAll(r.UnexplainedText(), " %", "\u00a0%"),
		WorstGap: "none", Duration: units.MsText(r.Run.Duration * 1e3), Timeline: chart.NewTimeline(a), Style: template.CSS(Style),
		Script: template.JS(Script), Width: chart.Width, Left: chart.PlotLeft - 8,
		PlotLeft: chart.PlotLeft, PlotRight: chart.PlotLeft + chart.PlotWidth, Middle: chart.PlotLeft + chart.PlotWidth/2}
	if worst := r.Worst(); worst != nil {
		p.WorstGap = units.Range(worst.LowerMs, worst.UpperMs)
	}
	p.Parameters = Settings(r)
	p.Nodes, p.Classes = filters(r)
	p.Chart = newLossChart(a, r, p.Timeline.Axis)
	p.Outages, p.MoreOutages = listOutages(a, r)
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

// lossChart is the first drawing: connections dropped and delayed per second.
type lossChart struct {
	Shapes []chart.Shape
	Ticks  []chart.Tick
	Lines  []chart.Tick // X is the height of a line here
	Unit   string
	Most   int
	Height int
	Bands  []chart.Shape
}

const (
	chartHeight = 150
	chartBase   = 122 // bottom of the bars
	chartTop    = 14
)

func newLossChart(a *analysis.Analysis, r *analysis.Report, like chart.Axis) lossChart {
	x := chart.Axis{From: like.From, To: like.To, Step: max(like.Step, time.Second)}
	x.Buckets = int((x.To - x.From + x.Step - 1) / x.Step)
	c := lossChart{Ticks: x.Ticks(), Height: chartHeight, Unit: "per second"}
	if x.Step > time.Second {
		c.Unit = "per second, the worst of each " + units.MsText(units.Millis(x.Step))
	}
	dropped, delayed := make([]int, x.Buckets), make([]int, x.Buckets)
	peaks(a, x, record.Class.Dropped, dropped)
	peaks(a, x, func(c record.Class) bool { return c == record.Delayed }, delayed)
	for i := range dropped {
		c.Most = max(c.Most, dropped[i]+delayed[i])
	}
	if c.Most > 0 {
		c.Lines = []chart.Tick{{X: chartTop, Text: units.Thousands(c.Most)}}
	}
	for i := range dropped {
		left := x.X(x.Start(i))
		s := chart.Shape{X: left, Y: chartBase, Width: max(1.5, units.Tenth(x.X(x.Start(i+1))-left-0.5))}
		for _, part := range [...]struct {
			class string
			n     int
		}{{"dropped", dropped[i]}, {"delayed", delayed[i]}} {
			if part.n == 0 {
				continue
			}
			s.Height = units.Tenth(max(2, float64(part.n)/float64(c.Most)*(chartBase-chartTop)))
			s.Y = units.Tenth(s.Y - s.Height)
			s.Class, s.Text = part.class, fmt.Sprintf("+%d s: %s %s %s", int(x.Start(i)/time.Second), units.Thousands(part.n), part.class, c.Unit)
			c.Shapes = append(c.Shapes, s)
		}
	}
	t := chart.Timeline{Axis: x, Height: chartBase}
	c.Bands = t.Phases(a)
	return c
}

// peaks fills each bucket with the largest number of such attempts in one of its seconds, over all measured lanes.
func peaks(a *analysis.Analysis, x chart.Axis, counts func(record.Class) bool, into []int) {
	perSecond := map[time.Duration]int{}
	for _, l := range a.Measured() {
		for i := range l.Records {
			if r := &l.Records[i]; counts(r.Class) {
				perSecond[r.Intended/time.Second] += int(r.N)
			}
		}
	}
	for second, n := range perSecond {
		i := x.Bucket(second * time.Second)
		into[i] = max(into[i], n)
	}
}

// pageOutages lists the outages in order of time; only the longest ones if there are too many.
func listOutages(a *analysis.Analysis, r *analysis.Report) ([]outage, int) {
	var all []outage
	for _, l := range a.Measured() {
		i := slices.IndexFunc(r.Lanes, func(x analysis.LaneReport) bool { return x.Name == l.Name })
		if i < 0 {
			continue
		}
		for k := range r.Lanes[i].Outages {
			all = append(all, outage{LaneOutage: analysis.LaneOutage{Lane: l.Name, OutageReport: r.Lanes[i].Outages[k]}, ID: len(all) + 1, found: l.Outages[k]})
		}
	}
	more := max(0, len(all)-maxOutages)
	if more > 0 {
		slices.SortStableFunc(all, func(x, y outage) int { return cmp.Compare(y.UpperMs, x.UpperMs) })
		all = all[:maxOutages]
	}
	slices.SortStableFunc(all, func(x, y outage) int { return cmp.Compare(x.From, y.From) })
	for i := range all {
		detail(a, &all[i])
	}
	return all, more
}

func detail(a *analysis.Analysis, p *outage) {
	p.At, p.Bounds, p.Failed = units.At(p.From), units.Range(p.LowerMs, p.UpperMs), analysis.ClassesText(p.Classes)
	begin := time.Duration(p.From * 1e9)
	from, to := begin-analysis.EvidenceSpan, time.Duration(p.To*1e9)+analysis.EvidenceSpan
	lines := 0
	for _, e := range a.Events {
		elsewhere := e.Node != "" && e.Node != p.Node && (e.Kind() == record.KindKernelTable || e.Kind() == record.KindLog && p.Node != "")
		if e.Kind() == record.KindLane || e.At < from || e.At > to || elsewhere {
			continue
		}
		if e.Kind() == record.KindLog {
			lines++
		}
		if len(p.Evidence) == maxEvidence || e.Kind() == record.KindLog && lines > maxLogLines {
			p.More++
			continue
		}
		p.Evidence = append(p.Evidence, evidence{Relative: relativeText(e.At - begin), At: units.At(units.Seconds(e.At)), Kind: e.Kind(),
			Node: analysis.NodeOf(e), Text: units.Clipped(e.Text), Same: analysis.NodeOf(e) != "" && analysis.NodeOf(e) == p.Node})
	}
	p.Kernel, p.Choices = a.KernelView(p.found), a.ChoiceRows(p.found)
	strip(a, p, max(0, from), to)
}

// strip draws the time around the outage on its path.
func strip(a *analysis.Analysis, p *outage, from, to time.Duration) {
	t := chart.Timeline{Axis: chart.NewAxis(from, to, 100*time.Millisecond, 200)}
	p.Ticks = t.Axis.Ticks()
	n := chart.NewTally(t.Axis.Buckets)
	for _, l := range a.Lanes {
		if l.Name != p.Lane {
			continue
		}
		for i := l.RecordAt(t.Axis.From); i < len(l.Records) && l.Records[i].Start() < t.Axis.To; i++ {
			if r := &l.Records[i]; a.Nodes[r.Node] == p.Node && r.Intended >= t.Axis.From {
				n.Add(t.Axis.Bucket(r.Intended), r)
			}
		}
		p.Strip = chart.AreasOf(t.PathShapes(n, l.DrawnGap()), 0)
	}
}

func relativeText(d time.Duration) string {
	if d < 0 {
		return units.MsText(units.Millis(-d)) + " before"
	}
	return units.MsText(units.Millis(d)) + " after"
}
