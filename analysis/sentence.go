package analysis

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// Sentence tells the run in one sentence: who, what, how many of how many, the worst gap with its bounds, where, when,
// and how long after which event.
func (r *Report) Sentence() string {
	failed := r.Totals.Dropped + r.Totals.Delayed
	head := fmt.Sprintf("%s, %s", r.SubjectText(), r.Run.Scenario)
	if nodes := r.NodesText(); nodes != "" {
		head += ", " + nodes
	}
	if r.Verdict == Skipped {
		return head + ": skipped"
	}
	if r.Totals.Attempts == 0 {
		return head + ": " + NothingMeasured + r.Recovery.clause() + "."
	}
	text := fmt.Sprintf("%s: %s of %s connections failed", head, units.Thousands(failed), units.Thousands(r.Totals.Attempts))
	if failed == 0 {
		if r.DetectionFloor.Ms != nil {
			text += "; " + r.detectable()
		}
		return text + r.Recovery.clause() + "."
	}
	text += " (" + ClassesText(r.Totals.ByClass) + ")" + r.excusedClause()
	if o := r.Worst(); o != nil {
		text += fmt.Sprintf("; worst gap %s", units.Range(o.LowerMs, o.UpperMs))
		if o.Node != "" {
			text += " on " + o.Node
		}
		text += " at " + units.At(o.From)
		if o.Cause.Event != "" {
			text += ": " + o.Cause.Text
		}
	}
	return text + r.Recovery.clause() + "."
}

// detectable tells which outages the attempts may have missed, of the Service and of one node.
func (r *Report) detectable() string {
	text := fmt.Sprintf("outages shorter than %s may be missed", units.MsText(*r.DetectionFloor.Ms))
	if ms := r.DetectionFloor.NodeMs; ms != nil {
		text += fmt.Sprintf(", on one node those shorter than %s", units.MsText(*ms))
	}
	return text
}

// Headline is what a reader must know first: how many connections of how many, in how many outages; or why there is nothing to believe.
func (r *Report) Headline() string {
	switch {
	case r.Early != nil && r.Early.Interrupted():
		return "Partial results: " + r.Claim()
	case r.Early != nil:
		return "Ended early: " + r.Early.Reason
	case r.Verdict == Invalid:
		return "Not to be trusted: " + FirstOf(r.Reasons...)
	case r.Verdict == Skipped:
		return "Skipped: " + FirstOf(r.Reasons...)
	}
	return r.Claim()
}

// NothingMeasured is said of a run without attempts, of which zero losses are no result.
const NothingMeasured = "no connection was measured"

// Claim tells the loss in one sentence, without its cause.
func (r *Report) Claim() string {
	if r.Totals.Attempts == 0 {
		return NothingMeasured + r.Recovery.clause() + "."
	}
	text := fmt.Sprintf("%s of %s connections dropped", units.Thousands(r.Totals.Dropped), units.Thousands(r.Totals.Attempts))
	if r.Totals.Delayed > 0 {
		text += fmt.Sprintf(" and %s delayed", units.Thousands(r.Totals.Delayed))
	}
	if n := len(r.AllOutages()); n > 0 {
		text += " in " + units.Plural(n, "outage")
	} else if r.Run.Duration > 0 {
		text += " in a run of " + units.Length(r.Run.Duration)
		if r.Run.Clock == "virtual" {
			text += " of virtual time"
		}
	}
	if o := r.Worst(); o != nil {
		text += "; longest " + units.Range(o.LowerMs, o.UpperMs)
		if o.Node != "" {
			text += " (" + o.Node + ")"
		}
	} else if r.DetectionFloor.Ms != nil {
		text += "; " + r.detectable()
	}
	if n := r.ExcusedAttempts(); n > 0 && n >= r.Totals.Dropped+r.Totals.Delayed {
		text += "; all of it unavoidable"
	} else if n > 0 {
		text += "; " + units.Thousands(n) + " of them unavoidable"
	}
	return text + r.Recovery.clause() + "."
}

// Heading is the verdict in a word, with the time of a run that ended early.
func (r *Report) Heading() string {
	switch {
	case r.Early == nil:
		return strings.ToUpper(string(r.Verdict))
	case r.Early.Interrupted():
		return "INTERRUPTED at " + units.At(r.Early.At)
	}
	return "INVALID at " + units.At(r.Early.At)
}

// Title says what was run: the scenario, the subject, the nodes, the control plane, that upstream's programs are its release artifacts, and
// which of the guest's tools are not the pinned ones.
func (r *Report) Title() string {
	text := r.Run.Scenario + ", " + r.SubjectText()
	if nodes := r.NodesText(); nodes != "" {
		text += ", " + nodes
	}
	if r.Run.ControlPlane != "" {
		text += ", control plane " + r.Run.ControlPlane
	}
	if r.Run.Programs != "" {
		text += ", " + r.Run.Programs + " programs"
	}
	if r.Run.Tools != "" {
		text += ", with other tools in the guest: " + r.Run.Tools
	}
	return text
}

// Notes are the other reasons; of an invalid run also its partial results.
func (r *Report) Notes() []string {
	var notes []string
	if r.Verdict == Invalid && !(r.Early != nil && r.Early.Interrupted()) { // the headline has them
		notes = append(notes, "partial results: "+r.Claim())
	}
	if len(r.Reasons) > 1 {
		notes = append(notes, r.Reasons[1:]...)
	}
	return notes
}

func (r *Report) SubjectText() string {
	s := r.Subject
	text := strings.Join(slices.DeleteFunc([]string{s.Name, s.Version, s.Mode, strings.ReplaceAll(s.Flags, "&", " ")}, func(t string) bool { return t == "" }), " ")
	if text == "" {
		return "unknown subject"
	}
	return text
}

// NodesText counts the nodes of the cluster, and those that carried traffic where they are fewer; empty without nodes.
func (r *Report) NodesText() string {
	switch used := r.nodeCount(); {
	case used == 0 && r.Run.Nodes == 0:
		return ""
	case r.Run.Nodes <= used:
		return units.Plural(used, "node")
	default:
		return fmt.Sprintf("%s, %d carried traffic", units.Plural(r.Run.Nodes, "node"), used)
	}
}

// nodeCount is how many nodes the measured lanes went over.
func (r *Report) nodeCount() int {
	var nodes []string
	for _, l := range r.Lanes {
		for _, p := range l.Paths {
			if p.Node != "" && !slices.Contains(nodes, p.Node) {
				nodes = append(nodes, p.Node)
			}
		}
	}
	return len(nodes)
}

// Worst is the outage of the measured lanes that may have been the longest; the first of equals.
func (r *Report) Worst() *OutageReport {
	var worst *OutageReport
	for i := range r.Lanes {
		for k := range r.Lanes[i].Outages {
			if o := &r.Lanes[i].Outages[k]; worst == nil || o.UpperMs > worst.UpperMs {
				worst = o
			}
		}
	}
	return worst
}

// WorstGapMs is the upper bound of the longest outage of the measured lanes; 0 when there was none.
func (r *Report) WorstGapMs() float64 {
	if o := r.Worst(); o != nil {
		return o.UpperMs
	}
	return 0
}

// ClassesText lists the classes of failure in their fixed order: 31 rejected, 6 delayed.
func ClassesText(byClass map[string]int) string {
	var parts []string
	for _, c := range record.Classes() {
		if n := byClass[c.String()]; n > 0 && c != record.OK && c != record.Probe {
			parts = append(parts, units.Thousands(n)+" "+c.String())
		}
	}
	return strings.Join(parts, ", ")
}

// LostSecond is a second with dropped connections.
type LostSecond struct{ Second, Dropped int }

// drops lists the seconds that dropped anything on any measured lane.
func (r *Report) LostSeconds() (seconds []LostSecond, most int) {
	for i := 0; ; i++ {
		sum, more := 0, false
		for _, l := range r.Lanes {
			if i < len(l.DroppedPerSecond) {
				sum, more = sum+l.DroppedPerSecond[i], true
			}
		}
		if !more {
			return seconds, most
		}
		if sum > 0 {
			seconds, most = append(seconds, LostSecond{i, sum}), max(most, sum)
		}
	}
}

// LaneOutage is an outage with the lane that saw it.
type LaneOutage struct {
	Lane string
	OutageReport
}

// AllOutages lists the outages of the measured lanes.
func (r *Report) AllOutages() []LaneOutage {
	var all []LaneOutage
	for _, l := range r.Lanes {
		for _, o := range l.Outages {
			all = append(all, LaneOutage{l.Name, o})
		}
	}
	return all
}

func NodeText(node string) string {
	if node == "" {
		return "no node"
	}
	return node
}

func (r *Report) FloorText() string {
	if r.DetectionFloor.Ms == nil {
		return "not proved"
	}
	return units.MsText(*r.DetectionFloor.Ms)
}

// ProofText tells how many of the injected faults were found, and until when several proofs were good.
func (r *Report) ProofText() string {
	d := r.DetectionFloor
	text := fmt.Sprintf("%d of %d injected faults detected", len(d.Found), len(d.Injected))
	if d.ProvedUntil != nil {
		text += fmt.Sprintf(" in %s, proved until %s", units.Plural(d.Proofs, "proof"), units.At(*d.ProvedUntil))
	}
	return text
}

// UnexplainedText tells how many of the failed connections no event explains.
func (r *Report) UnexplainedText() string {
	failed := r.Totals.Dropped + r.Totals.Delayed
	switch {
	case r.Totals.Attempts == 0:
		return NothingMeasured
	case failed == 0:
		return "none"
	}
	if r.Unexplained.Count == 0 {
		return fmt.Sprintf("all %s explained", units.Thousands(failed))
	}
	are := "are"
	if r.Unexplained.Count == 1 {
		are = "is"
	}
	return fmt.Sprintf("%s of %s %s unexplained (%.1f %%)", units.Thousands(r.Unexplained.Count), units.Plural(failed, "failed connection"), are, r.Unexplained.Share*100)
}

// TitleOf is a scenario with the parameters that the command of the run set: runs with the same title can be compared.
func TitleOf(scenario, command string) string {
	words := []string{scenario}
	for _, pair := range Changed(command) {
		if strings.ContainsAny(pair, " '") { // else two titles could be the same
			pair = record.Word(pair)
		}
		words = append(words, pair)
	}
	return strings.Join(words, " ")
}

// Changed are the parameters that the command of a run set, KEY=VALUE. Of a damaged command they are those that can be read.
func Changed(command string) []string {
	c, _ := record.ParseCommand(command)
	return c.Set()
}

// settings are the flags besides --set with which runs measure something else. Subject, seed and what made the run are no settings.
var settings = []string{"rate", "nodes", "clock", budgetFlag, "target", "protocol", "policy", "close", "path", "delayed-after", "namespace", "selector",
	"fleet", "fleet-everywhere", "fleet-on-host", "fleet-rate"}

const budgetFlag = "budget"

// SettingsOf is TitleOf with the other settings of the command, in order of their names: runs with the same text measure the same. The
// folder of a file is no setting.
func SettingsOf(scenario, command string) string {
	words := []string{TitleOf(scenario, command)}
	c, _ := record.ParseCommand(command) // as far as it can be read
	slices.SortStableFunc(c.Flags, func(a, b record.Flag) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range c.Flags {
		switch {
		case !slices.Contains(settings, f.Name):
		case f.Value == "":
			words = append(words, "--"+f.Name)
		case f.Name == budgetFlag:
			words = append(words, "--"+f.Name, record.Word(path.Base(f.Value)))
		default:
			words = append(words, "--"+f.Name, record.Word(f.Value))
		}
	}
	return strings.Join(words, " ")
}

// CauseGroup are the outages of the measured lanes with the same kind of cause.
type CauseGroup struct {
	Kind            string
	Outages         int
	Failed          int
	MedianMs        float64 // of the upper bounds
	LeastMs, MostMs float64
}

// Text tells the group in one line.
func (g CauseGroup) Text() string {
	switch g.Outages {
	case 1:
		return fmt.Sprintf("1 × %s: %s", g.Kind, units.MsText(g.MostMs))
	case 2:
		return fmt.Sprintf("2 × %s: %s and %s", g.Kind, units.MsText(g.LeastMs), units.MsText(g.MostMs))
	}
	return fmt.Sprintf("%s × %s: median %s, shortest %s, worst %s", units.Thousands(g.Outages), g.Kind, units.MsText(g.MedianMs), units.MsText(g.LeastMs), units.MsText(g.MostMs))
}

// Causes groups the outages of the measured lanes, those with the most failures first.
func (r *Report) Causes() (groups []CauseGroup) {
	lengths := map[string][]float64{}
	for _, o := range r.AllOutages() {
		i := slices.IndexFunc(groups, func(g CauseGroup) bool { return g.Kind == o.Cause.Kind })
		if i < 0 {
			i, groups = len(groups), append(groups, CauseGroup{Kind: o.Cause.Kind})
		}
		groups[i].Outages++
		groups[i].Failed += o.Failed()
		lengths[o.Cause.Kind] = append(lengths[o.Cause.Kind], o.UpperMs)
	}
	for i := range groups {
		g, all := &groups[i], lengths[groups[i].Kind]
		slices.Sort(all)
		g.MedianMs, g.LeastMs, g.MostMs = Quantile(all, 0.5), all[0], all[len(all)-1]
	}
	slices.SortStableFunc(groups, func(x, y CauseGroup) int { return y.Failed - x.Failed })
	return groups
}
