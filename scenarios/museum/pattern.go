package museum

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// pattern is the loss that a bug causes: which attempts fail, from which occasion on, and for how long. Its method search is a Signature.
type pattern struct {
	occasions func(r *Record) []step // times at which the bug can begin to lose attempts
	name      string                 // what the occasions are, in the plural
	protocol  string                 // of the lanes that lose attempts; every protocol if empty
	onNode    bool                   // the path is over the occasion's node
	within    time.Duration          // the loss begins at most this long after the end of the occasion; effectWithin if 0
	classes   []record.Class         // of nine tenths of the failed attempts or more; every class if empty
	least     time.Duration          // shortest loss
	includes  record.Class           // of at least one failed attempt; 0 for none
	fewest    int                    // failed attempts of all these losses together, at least
	most      time.Duration          // longest loss; 0 for no limit
	toEnd     bool                   // the loss lasts to the end of the run
	until     func(r *Record) []step // occasions at which the loss ends, at most effectWithin after them; nil for any time
	pause     time.Duration          // losses on one path with at most this time between them are one loss
	served    string                 // protocol of a lane that is served on the same path in the second half of the loss
}

// search looks for the loss.
func (p pattern) search(r *Record) Finding {
	occasions, losses := p.occasions(r), p.losses(r)
	if f := p.checkObserved(r, occasions); f != nil {
		return *f
	}
	var seen, unserved []string
	var longest time.Duration
	failed := 0
	for _, l := range losses {
		if !slices.ContainsFunc(occasions, func(o step) bool { return p.begins(l, o) }) {
			continue
		}
		longest = max(longest, l.to-l.from)
		switch {
		case !p.matches(r, l):
		case p.served != "" && !r.servedMeanwhile(p.served, l):
			unserved = append(unserved, l.describe(r))
		default:
			seen = append(seen, l.describe(r))
			failed += l.failed()
		}
	}
	slices.Sort(seen)
	lostBefore := func(o step) bool {
		return slices.ContainsFunc(losses, func(l lossOnPath) bool { return p.lasts(l, o) })
	}
	switch {
	case len(seen) > 0 && failed >= p.fewest:
		return Finding{Seen, seen}
	case len(unserved) > 0:
		return cannotTell("%s, and lane %s was not served meanwhile either", unserved[0], p.served)
	case !slices.ContainsFunc(occasions, func(o step) bool { return !lostBefore(o) }):
		return cannotTell("attempts were already lost at all %d %s", len(occasions), p.name)
	case len(seen) > 0:
		return Finding{NotSeen, []string{fmt.Sprintf("only %d attempts were lost at %d %s, and the bug loses %d or more", failed, len(occasions), p.name, p.fewest)}}
	}
	return Finding{NotSeen, []string{fmt.Sprintf("the longest loss that began at one of %d %s lasted %.1f s, or was of another kind", len(occasions), p.name, longest.Seconds())}}
}

// lasts reports whether a loss on a path of an occasion began before the occasion and has not ended at its begin.
func (p pattern) lasts(l lossOnPath, o step) bool {
	return l.from < o.begin && l.to >= o.begin && (!p.onNode || l.node == o.node)
}

// checkObserved returns why the run cannot show the loss; nil when it can.
func (p pattern) checkObserved(r *Record, occasions []step) *Finding {
	cannot := func(format string, args ...any) *Finding { f := cannotTell(format, args...); return &f }
	if len(occasions) == 0 {
		return cannot("the run has no %s", p.name)
	}
	first, last := occasions[0], occasions[len(occasions)-1]
	if watched := r.end() - last.end; p.until == nil && watched < p.least {
		return cannot("the lanes ran for %s after the last of the %s; the bug needs %s", watched, p.name, p.least)
	}
	if r.Report.DetectionFloor.Ms == nil || p.least > 0 && !r.detects(p.least) {
		return cannot("the run could not have detected a loss of %s", p.least)
	}
	for _, protocol := range []string{p.protocol, p.served} {
		if protocol != "" && !r.answered(protocol, "", 0, first.begin) {
			return cannot("no attempt of a lane %s was answered before the %s", protocol, p.name)
		}
	}
	return nil
}

// lossOnPath is one or more outages on one path of a lane.
type lossOnPath struct {
	protocol, node string
	from, to       time.Duration
	classes        map[string]int
}

// losses returns the losses of the pattern's lanes, joined over pauses.
func (p pattern) losses(r *Record) (found []lossOnPath) {
	for _, l := range r.Report.Lanes {
		if p.protocol != "" && l.Protocol != p.protocol {
			continue
		}
		open := map[string]int{}
		for _, o := range l.Outages {
			i, known := open[o.Node]
			if !known || fromSeconds(o.From)-found[i].to > p.pause {
				i = len(found)
				open[o.Node] = i
				found = append(found, lossOnPath{l.Protocol, o.Node, fromSeconds(o.From), fromSeconds(o.To), map[string]int{}})
			}
			found[i].add(o)
		}
	}
	return found
}

func (l *lossOnPath) add(o analysis.OutageReport) {
	l.to = fromSeconds(o.To)
	for class, n := range o.Classes {
		l.classes[class] += n
	}
}

// failed is the number of failed attempts.
func (l *lossOnPath) failed() (n int) {
	for _, of := range l.classes {
		n += of
	}
	return n
}

// begins reports whether a loss begins at an occasion.
func (p pattern) begins(l lossOnPath, o step) bool {
	within := p.within
	if within == 0 {
		within = effectWithin
	}
	return l.from >= o.begin && l.from <= o.end+within && (!p.onNode || l.node == o.node)
}

// matches reports whether a loss is of the pattern's kind, besides its begin and the lane that is served.
func (p pattern) matches(r *Record, l lossOnPath) bool {
	length := l.to - l.from
	switch {
	case length < p.least || p.most > 0 && length > p.most:
	case p.toEnd && l.to < r.end()-endWithin:
	case p.until != nil && !slices.ContainsFunc(p.until(r), func(s step) bool { return l.to >= s.begin-endWithin && l.to <= s.end+effectWithin }):
	case !p.ofClasses(l) || p.includes != 0 && l.classes[p.includes.String()] == 0:
	default:
		return true
	}
	return false
}

// ofClasses reports whether nine tenths of the failed attempts have one of the pattern's classes.
func (p pattern) ofClasses(l lossOnPath) bool {
	ours := 0
	for class, n := range l.classes {
		if len(p.classes) == 0 || slices.ContainsFunc(p.classes, func(c record.Class) bool { return c.String() == class }) {
			ours += n
		}
	}
	return 10*ours >= 9*l.failed()
}

// servedMeanwhile reports whether a protocol's lane got answers and lost nothing on the same path in the second half of a loss.
func (r *Record) servedMeanwhile(protocol string, l lossOnPath) bool {
	half := l.from + (l.to-l.from)/2
	for _, lane := range r.Report.Lanes {
		for _, o := range lane.Outages {
			if lane.Protocol == protocol && o.Node == l.node && fromSeconds(o.To) >= half && fromSeconds(o.From) <= l.to {
				return false
			}
		}
	}
	return r.answered(protocol, l.node, half, l.to)
}

func (l lossOnPath) describe(r *Record) string {
	over, end := "", ""
	if l.node != "" {
		over = " over " + l.node
	}
	if l.to >= r.end()-endWithin {
		end = ", to the end of the run"
	}
	return fmt.Sprintf("%s lost attempts%s from %.1f s on, for %.1f s%s (%s)", l.protocol, over, l.from.Seconds(), (l.to - l.from).Seconds(), end, countsOf(l.classes))
}

// countsOf lists the counts of classes.
func countsOf(classes map[string]int) string {
	var words []string
	for class, n := range classes {
		words = append(words, fmt.Sprintf("%s %d", class, n))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// atSteps returns the occasions that are the steps whose name begins with a prefix.
func atSteps(prefix string) func(r *Record) []step {
	return func(r *Record) []step { return r.steps(prefix) }
}

// atBegins returns the begins of these steps. A step that also waits for what follows has its effect long before its end.
func atBegins(prefix string) func(r *Record) []step {
	return func(r *Record) []step {
		found := r.steps(prefix)
		for i := range found {
			found[i].end = found[i].begin
		}
		return found
	}
}

// over gives occasions, whose steps are not those of a node, the node whose path they affect.
func over(node string, occasions func(r *Record) []step) func(r *Record) []step {
	return func(r *Record) []step {
		found := occasions(r)
		for i := range found {
			found[i].node = node
		}
		return found
	}
}

// atExits returns the occasions that are the ends of pods of the measured workload in the scenario.
func atExits(r *Record) []step { return r.podsThat(record.PodExited) }

// podsThat returns when pods of the measured workload got a state in the scenario, at the earliest and at the latest; the name is the pod's.
func (r *Record) podsThat(state record.PodState) (found []step) {
	scenario := r.phase("scenario")
	for _, e := range r.Events {
		if b, is := e.Body.(record.Pod); is && b.State == state && e.At > scenario && strings.HasPrefix(b.Pod, "web-") {
			found = append(found, step{b.Pod, b.Node, e.At - recordLag, e.At})
		}
	}
	return found
}

// refusing are the classes of attempts that were refused by an ICMP error or a RST.
var refusing = []record.Class{record.Rejected, record.Refused}
