package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// recount is what a report says about a lane, counted from the packets.
type recount struct {
	dropped   []int // by second of the run
	attempts  map[string]int
	droppedOn map[string]int
}

// compareReport compares the numbers of the report with those of the packets: each second, each path, each outage.
func (k *check) compareReport(l *lane, r *analysis.Report) {
	i := slices.IndexFunc(r.Lanes, func(x analysis.LaneReport) bool { return x.Name == l.Name })
	told := &analysis.LaneReport{}
	if i >= 0 {
		told = &r.Lanes[i]
	} else if i = slices.IndexFunc(r.Controls, func(x analysis.LaneReport) bool { return x.Name == l.Name }); i >= 0 {
		told = &r.Controls[i]
	} else {
		k.inReport(l, "the report does not have this lane")
		return
	}
	n := l.recount(len(told.DroppedPerSecond))
	for s, want := range n.dropped {
		if told.DroppedPerSecond[s] != want {
			k.inReport(l, fmt.Sprintf("second %d: %d dropped in the report, %d by the packets", s, told.DroppedPerSecond[s], want))
		}
	}
	k.comparePaths(l, told, n)
	k.compareOutages(l, told)
}

func (k *check) comparePaths(l *lane, told *analysis.LaneReport, n recount) {
	paths := map[string]analysis.PathReport{}
	for _, p := range told.Paths {
		paths[p.Node] = p
	}
	nodes := maps.Clone(n.attempts)
	for _, p := range told.Paths {
		nodes[p.Node] += 0
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if p := paths[node]; p.Attempts != n.attempts[node] || p.Dropped != n.droppedOn[node] {
			k.inReport(l, fmt.Sprintf("path over %q: %d attempts and %d dropped in the report, %d and %d by the packets", node, p.Attempts, p.Dropped, n.attempts[node], n.droppedOn[node]))
		}
	}
}

func (l *lane) recount(seconds int) recount {
	n := recount{make([]int, seconds), map[string]int{}, map[string]int{}}
	for i := range l.attempts {
		a, s := &l.attempts[i], l.seen[i]
		n.attempts[s.node]++
		if s.dropped(a) {
			n.droppedOn[s.node]++
			if second := int(a.Intended / time.Second); second < seconds {
				n.dropped[second]++
			}
		}
	}
	return n
}

// compareOutages compares the bounds and the numbers of the report's outages with the failures of the packets. Each failure must lie
// in an outage.
func (k *check) compareOutages(l *lane, told *analysis.LaneReport) {
	counted := make([]outageCount, len(told.Outages))
	for i := range l.attempts {
		a, s := &l.attempts[i], l.seen[i]
		if !s.failed(a) {
			continue
		}
		o := slices.IndexFunc(told.Outages, func(o analysis.OutageReport) bool {
			at := units.Seconds(a.Intended)
			return o.Node == s.node && o.From <= at && at <= o.To
		})
		if o < 0 {
			k.found(OtherReport, l, a, fmt.Sprintf("%s by the packets, and in no outage of the report", s.outcome))
			continue
		}
		counted[o].add(units.Seconds(a.Intended))
	}
	for i, o := range told.Outages {
		if c := counted[i]; c.failed != o.Failed() || c.from != o.From || c.to != o.To {
			k.inReport(l, fmt.Sprintf("outage over %q from %s to %s with %d failed attempts in the report; from %s to %s with %d by the packets",
				o.Node, units.At(o.From), units.At(o.To), o.Failed(), units.At(c.from), units.At(c.to), c.failed))
		}
	}
}

// outageCount is what the packets say about an outage of the report. Times are seconds of the run.
type outageCount struct {
	from, to float64
	failed   int
}

func (c *outageCount) add(at float64) {
	if c.failed == 0 || at < c.from {
		c.from = at
	}
	c.to = max(c.to, at)
	c.failed++
}

func (k *check) inReport(l *lane, text string) {
	k.result.add(Finding{Kind: OtherReport, Lane: l.Name, Text: text})
}
