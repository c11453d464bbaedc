package reports

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

	"github.com/hitless/hitless/record"
)

//go:embed html/page.html
var pageTemplate string

//go:embed html/page.css
var pageStyle string

//go:embed html/page.js
var pageScript string

// What the page holds at most; it says what it leaves out, and report.json has all of it.
const (
	pageOutages  = 100
	pageEvidence = 30
	pageEvents   = 1000
	pageSeconds  = 1000
	pageLines    = 10 // of logs, in the evidence of an outage: they are not to hide its events
)

// EvidenceSpan is how long before and after an outage what happened is its evidence.
const EvidenceSpan = 2 * time.Second

// WritePage writes report.html: one file that needs no network, works from disk, and is a function of the history alone.
func WritePage(w io.Writer, r *Report, h *record.History) error {
	a, err := analyse(h)
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	origin, err := h.Origin()
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	return a.writePage(w, r, origin, h)
}

// page is what the template shows.
type page struct {
	Report      *Report
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
	Chart       chart
	Timeline    *timeline
	Outages     []pageOutage
	MoreOutages int
	Seconds     []bucket
	MoreSeconds int
	Events      []ReportEvent
	MoreEvents  int
	Data        pageData
	Style       template.CSS
	Script      template.JS
	Width       int
	Left        int // where labels end
	PlotLeft    int
	PlotRight   int
	Middle      int
}

type setting struct{ Key, Value string }

// pageData is what the script needs for the linked cursor.
type pageData struct {
	From   float64   `json:"from"` // seconds
	To     float64   `json:"to"`
	Step   float64   `json:"step"`
	Left   int       `json:"left"`
	Width  int       `json:"width"`
	Total  int       `json:"total"` // of the drawing
	Rows   []dataRow `json:"rows"`
	Events []dataEvt `json:"events"`
}

type dataRow struct {
	Name    string           `json:"name"`
	Numbers map[string][]int `json:"numbers"`
}

type dataEvt struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// pageOutage is an outage with its evidence.
type pageOutage struct {
	laneOutage
	found    *outage
	ID       int
	At       string
	Bounds   string
	Failed   string
	Evidence []evidence
	Kernel   *kernelView
	Choices  []choiceRow
	Seen     []seenRow
	MoreSeen int
	Unseen   int // failed attempts that Seen does not tell of
	More     int
	Strip    []area
	Ticks    []tick
}

// OnPath names the path.
func (p pageOutage) OnPath() string { return p.lane + " over " + nodeText(p.Node) }

// ClassWords are the classes of the outage's failures, separated by blanks.
func (p pageOutage) ClassWords() string {
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

func (a *analysis) writePage(w io.Writer, r *Report, o record.Origin, h *record.History) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"thousands": thousands, "ms": msText, "at": atText,
		"node": nodeText, "classes": classesText, "milli": func(s float64) string { return msText(s * 1e3) }}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}
	var b bytes.Buffer
	p := a.page(r, o)
	a.witness(h, p.Outages)
	if err := parsed.Execute(&b, p); err != nil {
		return fmt.Errorf("filling the page's template: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func (a *analysis) page(r *Report, o record.Origin) *page {
	p := &page{Report: r, Origin: o, Headline: r.headline(), Notes: r.notes(), Floor: r.floorText(), Unexplained: strings.ReplaceAll(r.unexplainedText(), " %", "\u00a0%"),
		WorstGap: "none", Duration: msText(r.Run.Duration * 1e3), Timeline: a.timeline(), Style: template.CSS(pageStyle),
		Script: template.JS(pageScript), Width: drawingWidth, Left: plotLeft - 8,
		PlotLeft: plotLeft, PlotRight: plotLeft + plotWidth, Middle: plotLeft + plotWidth/2}
	if worst := r.worst(); worst != nil {
		p.WorstGap = rangeText(worst.LowerMs, worst.UpperMs)
	}
	p.Parameters = r.settings()
	p.Nodes, p.Classes = r.filters()
	p.Chart = a.chart(r, p.Timeline.axis)
	p.Outages, p.MoreOutages = a.pageOutages(r)
	p.Seconds, _ = r.drops()
	if p.MoreSeconds = len(p.Seconds) - pageSeconds; p.MoreSeconds > 0 {
		p.Seconds = p.Seconds[:pageSeconds]
	}
	p.MoreEvents = len(r.Events) - pageEvents
	for _, e := range r.Events[:min(len(r.Events), pageEvents)] {
		e.Text = clipped(e.Text)
		p.Events = append(p.Events, e)
	}
	p.Data = a.pageData(p.Timeline)
	return p
}

func (a *analysis) pageData(t *timeline) pageData {
	d := pageData{From: seconds(t.axis.from), To: seconds(t.axis.to), Step: seconds(t.axis.step), Left: plotLeft, Width: plotWidth,
		Total: drawingWidth, Rows: []dataRow{}, Events: []dataEvt{}}
	for _, row := range t.Rows {
		if row.Numbers != nil {
			d.Rows = append(d.Rows, dataRow{row.Name, row.Numbers})
		}
	}
	for _, e := range a.events {
		if e.Kind() != record.KindLane && e.Kind() != record.KindPhase && e.At >= t.axis.from && len(d.Events) < pageEvents {
			d.Events = append(d.Events, dataEvt{seconds(e.At), eventText(e)})
		}
	}
	return d
}

// filters are the nodes and the classes that a reader may want to look at alone.
func (r *Report) filters() (nodes, classes []string) {
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

// settings are the parameters in the order of their keys.
func (r *Report) settings() []setting {
	var all []setting
	for _, key := range slices.Sorted(maps.Keys(r.Run.Parameters)) {
		all = append(all, setting{key, r.Run.Parameters[key]})
	}
	return all
}

// chart is the first drawing: connections dropped and delayed per second.
type chart struct {
	Shapes []shape
	Ticks  []tick
	Lines  []tick // X is the height of a line here
	Unit   string
	Most   int
	Height int
	Bands  []shape
}

const (
	chartHeight = 150
	chartBase   = 122 // where the bars stand
	chartTop    = 14
)

func (a *analysis) chart(r *Report, like axis) chart {
	x := axis{from: like.from, to: like.to, step: max(like.step, time.Second)}
	x.buckets = int((x.to - x.from + x.step - 1) / x.step)
	c := chart{Ticks: x.ticks(), Height: chartHeight, Unit: "per second"}
	if x.step > time.Second {
		c.Unit = "per second, the worst of each " + msText(millis(x.step))
	}
	dropped, delayed := make([]int, x.buckets), make([]int, x.buckets)
	a.peaks(x, record.Class.Dropped, dropped)
	a.peaks(x, func(c record.Class) bool { return c == record.Delayed }, delayed)
	for i := range dropped {
		c.Most = max(c.Most, dropped[i]+delayed[i])
	}
	if c.Most > 0 {
		c.Lines = []tick{{chartTop, thousands(c.Most)}}
	}
	for i := range dropped {
		left := x.x(x.start(i))
		s := shape{X: left, Y: chartBase, Width: max(1.5, tenth(x.x(x.start(i+1))-left-0.5))}
		for _, part := range [...]struct {
			class string
			n     int
		}{{"dropped", dropped[i]}, {"delayed", delayed[i]}} {
			if part.n == 0 {
				continue
			}
			s.Height = tenth(max(2, float64(part.n)/float64(c.Most)*(chartBase-chartTop)))
			s.Y = tenth(s.Y - s.Height)
			s.Class, s.Text = part.class, fmt.Sprintf("+%d s: %s %s %s", int(x.start(i)/time.Second), thousands(part.n), part.class, c.Unit)
			c.Shapes = append(c.Shapes, s)
		}
	}
	t := timeline{axis: x, Height: chartBase}
	c.Bands = t.phases(a)
	return c
}

// peaks fills the buckets with the largest number of such attempts in any of their seconds, over all measured lanes.
func (a *analysis) peaks(x axis, counts func(record.Class) bool, into []int) {
	perSecond := map[time.Duration]int{}
	for _, l := range a.measured() {
		for i := range l.records {
			if r := &l.records[i]; counts(r.class) {
				perSecond[r.intended/time.Second] += int(r.n)
			}
		}
	}
	for second, n := range perSecond {
		i := x.bucket(second * time.Second)
		into[i] = max(into[i], n)
	}
}

// pageOutages lists the outages in order of time; when they are too many, the longest ones.
func (a *analysis) pageOutages(r *Report) ([]pageOutage, int) {
	var all []pageOutage
	for _, l := range a.measured() {
		i := slices.IndexFunc(r.Lanes, func(x LaneReport) bool { return x.Name == l.Name })
		if i < 0 {
			continue
		}
		for k := range r.Lanes[i].Outages {
			all = append(all, pageOutage{laneOutage: laneOutage{l.Name, r.Lanes[i].Outages[k]}, ID: len(all) + 1, found: l.outages[k]})
		}
	}
	more := max(0, len(all)-pageOutages)
	if more > 0 {
		slices.SortStableFunc(all, func(x, y pageOutage) int { return cmp.Compare(y.UpperMs, x.UpperMs) })
		all = all[:pageOutages]
	}
	slices.SortStableFunc(all, func(x, y pageOutage) int { return cmp.Compare(x.From, y.From) })
	for i := range all {
		a.detail(&all[i])
	}
	return all, more
}

func (a *analysis) detail(p *pageOutage) {
	p.At, p.Bounds, p.Failed = atText(p.From), rangeText(p.LowerMs, p.UpperMs), classesText(p.Classes)
	begin := time.Duration(p.From * 1e9)
	from, to := begin-EvidenceSpan, time.Duration(p.To*1e9)+EvidenceSpan
	lines := 0
	for _, e := range a.events {
		elsewhere := e.Node != "" && e.Node != p.Node && (e.Kind() == record.KindKernelTable || e.Kind() == record.KindLog && p.Node != "")
		if e.Kind() == record.KindLane || e.At < from || e.At > to || elsewhere {
			continue
		}
		if e.Kind() == record.KindLog {
			lines++
		}
		if len(p.Evidence) == pageEvidence || e.Kind() == record.KindLog && lines > pageLines {
			p.More++
			continue
		}
		p.Evidence = append(p.Evidence, evidence{Relative: relativeText(e.At - begin), At: atText(seconds(e.At)), Kind: e.Kind(),
			Node: nodeOf(e), Text: clipped(e.Text), Same: nodeOf(e) != "" && nodeOf(e) == p.Node})
	}
	p.Kernel, p.Choices = a.kernelView(p.found), a.choiceRows(p.found)
	a.strip(p, max(0, from), to)
}

// strip draws the outage's path closely.
func (a *analysis) strip(p *pageOutage, from, to time.Duration) {
	t := timeline{axis: newAxis(from, to, 100*time.Millisecond, 200)}
	p.Ticks = t.axis.ticks()
	n := newTally(t.axis.buckets)
	for _, l := range a.lanes {
		if l.Name != p.lane {
			continue
		}
		for i := l.recordAt(t.axis.from); i < len(l.records) && l.records[i].start() < t.axis.to; i++ {
			if r := &l.records[i]; a.nodes[r.node] == p.Node && r.intended >= t.axis.from {
				n.add(t.axis.bucket(r.intended), r)
			}
		}
		p.Strip = areasOf(t.pathShapes(n, l.drawnGap()), 0)
	}
}

func relativeText(d time.Duration) string {
	if d < 0 {
		return msText(millis(-d)) + " before"
	}
	return msText(millis(d)) + " after"
}
