package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// group are the outages with one kind of cause.
type group struct {
	analysis.CauseGroup
	Open    bool
	Outages []outage
	More    int // outages that are only in report.json
}

// outage is an outage with its evidence.
type outage struct {
	analysis.LaneOutage
	found    *analysis.Outage
	ID       int // in order of time
	At       string
	Bounds   string
	Failed   string
	Told     bool // the head of the page tells its cause
	Evidence []evidence
	Kernel   *analysis.KernelView
	Choices  []analysis.ChoiceRow
	Seen     []seenRow
	MoreSeen int
	Unseen   int // failed attempts that Seen leaves out
	More     int
	Chain    *chart.Chain
}

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

// listOutages lists and numbers all outages in order of time.
func listOutages(a *analysis.Analysis, r *analysis.Report) (all []outage) {
	for _, l := range a.Measured() {
		i := slices.IndexFunc(r.Lanes, func(x analysis.LaneReport) bool { return x.Name == l.Name })
		if i < 0 {
			continue
		}
		for k := range r.Lanes[i].Outages {
			all = append(all, outage{LaneOutage: analysis.LaneOutage{Lane: l.Name, OutageReport: r.Lanes[i].Outages[k]}, found: l.Outages[k]})
		}
	}
	slices.SortStableFunc(all, func(x, y outage) int { return cmp.Compare(x.From, y.From) })
	for i := range all {
		all[i].ID = i + 1
	}
	return all
}

// worstOf is the outage that the report calls the longest, and its number; nil for none.
func worstOf(all []outage) (*analysis.LaneOutage, int) {
	worst := -1
	for i := range all {
		if worst < 0 || all[i].UpperMs > all[worst].UpperMs {
			worst = i
		}
	}
	if worst < 0 {
		return nil, 0
	}
	return &all[worst].LaneOutage, all[worst].ID
}

// groupsOf groups the outages by cause. Of many outages it shows only the longest. states are those of the whole run.
func groupsOf(a *analysis.Analysis, r *analysis.Report, all []outage, worst int, states []analysis.StateRow, h *record.History) (groups []group, more int) {
	shown := slices.Clone(all)
	if more = max(0, len(all)-maxOutages); more > 0 {
		slices.SortStableFunc(shown, func(x, y outage) int { return cmp.Compare(y.UpperMs, x.UpperMs) })
		shown = shown[:maxOutages]
		slices.SortStableFunc(shown, func(x, y outage) int { return cmp.Compare(x.ID, y.ID) })
	}
	for i := range shown {
		shown[i].Told = shown[i].ID == worst
		detail(a, &shown[i], states)
	}
	addSamples(a, h, shown)
	for _, g := range r.Causes() {
		own := group{CauseGroup: g, Open: len(all) <= openOutages}
		for _, o := range shown {
			if o.Cause.Kind == g.Kind {
				own.Outages = append(own.Outages, o)
			}
		}
		own.More = g.Outages - len(own.Outages)
		groups = append(groups, own)
	}
	return groups, more
}

// openOutages is how many outages a page lists without a click.
const openOutages = 8

func detail(a *analysis.Analysis, p *outage, states []analysis.StateRow) {
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
	p.Chain = chart.NewChain(a, p.found, p.OutageReport, states, from, to)
}

func relativeText(d time.Duration) string {
	if d < 0 {
		return units.MsText(units.Millis(-d)) + " before"
	}
	return units.MsText(units.Millis(d)) + " after"
}

// snippet is the report for an issue or a chat: the sentence, the chart as text, the command that repeats it, and the hash.
func snippet(r *analysis.Report, o record.Origin) string {
	const width = 60
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** %s\n\n%s\n", r.Heading(), r.Title(), r.Headline())
	for i, g := range r.Causes() {
		if i == maxSnippetCauses {
			b.WriteString("- …\n")
			break
		}
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s\n", g.Text())
	}
	if worst := r.Worst(); worst != nil {
		fmt.Fprintf(&b, "\nThe longest: %s.\n", worst.Cause.Text)
	}
	if spark := chart.Sparkline(r, width); spark != "" {
		fmt.Fprintf(&b, "\n```\n%s\n%-*s%s\n```\n", spark, max(0, len([]rune(spark))-len(units.MsText(r.Run.Duration*1e3))), "0", units.MsText(r.Run.Duration*1e3))
	}
	if o.Command != "" {
		fmt.Fprintf(&b, "\nRepeat with:\n\n    %s\n", o.Command)
	}
	fmt.Fprintf(&b, "\nhistory sha256 `%s`\n", o.HistorySha256)
	return b.String()
}

const maxSnippetCauses = 5
