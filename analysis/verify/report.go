package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
)

// compareReport compares the numbers of the report with those of the packets: each second, each path, each outage.
func (k *check) compareReport(l *lane, r *analysis.Report) {
	all := slices.Concat(r.Lanes, r.Controls)
	i := slices.IndexFunc(all, func(x analysis.LaneReport) bool { return x.Name == l.Name })
	if i < 0 {
		k.inReport(l, "the report does not have this lane")
		return
	}
	told := &all[i]
	for s, want := range l.droppedPerSecond(len(told.DroppedPerSecond)) {
		if told.DroppedPerSecond[s] != want {
			k.inReport(l, fmt.Sprintf("second %d: %d dropped in the report, %d by the packets", s, told.DroppedPerSecond[s], want))
		}
	}
	k.comparePaths(l, told)
	k.compareOutages(l, told)
}

func (k *check) comparePaths(l *lane, told *analysis.LaneReport) {
	nodes, paths := slices.Collect(maps.Keys(l.result.Paths)), map[string]PathCount{}
	for _, p := range told.Paths {
		nodes, paths[p.Node] = append(nodes, p.Node), PathCount{p.Attempts, p.Dropped}
	}
	slices.Sort(nodes)
	for _, node := range slices.Compact(nodes) {
		var own PathCount
		if p := l.result.Paths[node]; p != nil {
			own = *p
		}
		if p := paths[node]; p != own {
			k.inReport(l, fmt.Sprintf("path over %q: %d attempts and %d dropped in the report, %d and %d by the packets", node, p.Attempts, p.Dropped, own.Attempts, own.Dropped))
		}
	}
}

// droppedPerSecond counts the dropped attempts of each second of the run by the packets.
func (l *lane) droppedPerSecond(seconds int) []int {
	n := make([]int, seconds)
	for i := range l.attempts {
		a := &l.attempts[i]
		if second := int(a.Intended / time.Second); second < seconds && l.seen[i].dropped(a) {
			n[second]++
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
