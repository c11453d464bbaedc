package reports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/record"
)

// Sentence tells the run in one sentence: who, what, how many of how many, the worst gap with its bounds, where, when,
// and how long after which event.
func (r *Report) Sentence() string {
	failed := r.Totals.Dropped + r.Totals.Delayed
	head := fmt.Sprintf("%s, %s", r.subjectText(), r.Run.Scenario)
	if n := r.nodeCount(); n > 0 {
		head += ", " + plural(n, "node")
	}
	if r.Verdict == Skipped {
		return head + ": skipped"
	}
	text := fmt.Sprintf("%s: %s of %s connections failed", head, thousands(failed), thousands(r.Totals.Attempts))
	if failed == 0 {
		if r.DetectionFloor.Ms != nil {
			text += fmt.Sprintf("; an outage of %s or more would have been seen", msText(*r.DetectionFloor.Ms))
		}
		return text + "."
	}
	text += " (" + classesText(r.Totals.ByClass) + ")"
	if o := r.worst(); o != nil {
		text += fmt.Sprintf("; worst gap %s", rangeText(o.LowerMs, o.UpperMs))
		if o.Node != "" {
			text += " on " + o.Node
		}
		text += " at " + atText(o.From)
		if o.Cause.Event != "" {
			text += ": " + o.Cause.Text
		}
	}
	return text + "."
}

// headline is what a reader must know first: the sentence, or why there is nothing to believe.
func (r *Report) headline() string {
	switch r.Verdict {
	case Invalid:
		return "Not to be trusted: " + firstOf(r.Reasons...)
	case Skipped:
		return "Skipped: " + firstOf(r.Reasons...)
	}
	return r.Sentence()
}

// notes are the other reasons; of an invalid run also what it measured all the same.
func (r *Report) notes() []string {
	var notes []string
	if r.Verdict == Invalid {
		notes = append(notes, "measured all the same: "+r.Sentence())
	}
	if len(r.Reasons) > 1 {
		notes = append(notes, r.Reasons[1:]...)
	}
	return notes
}

func (r *Report) subjectText() string {
	s := r.Subject
	text := strings.Join(slices.DeleteFunc([]string{s.Name, s.Version, s.Mode}, func(t string) bool { return t == "" }), " ")
	if text == "" {
		return "unknown subject"
	}
	return text
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

// worst is the outage of the measured lanes that may have been the longest; the first of equals.
func (r *Report) worst() *OutageReport {
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
	if o := r.worst(); o != nil {
		return o.UpperMs
	}
	return 0
}

// classesText lists the classes of failure in their fixed order: 31 rejected, 6 delayed.
func classesText(byClass map[string]int) string {
	var parts []string
	for _, c := range record.Classes() {
		if n := byClass[c.String()]; n > 0 && c != record.OK && c != record.Probe {
			parts = append(parts, thousands(n)+" "+c.String())
		}
	}
	return strings.Join(parts, ", ")
}
