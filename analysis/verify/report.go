package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
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
	if dropped, delayed := l.failures(); told.Attempts != len(l.attempts) || told.Dropped != dropped || told.Delayed != delayed {
		k.inReport(l, fmt.Sprintf("%d attempts with %d dropped and %d delayed in the report, %d with %d and %d by the packets", told.Attempts, told.Dropped, told.Delayed,
			len(l.attempts), dropped, delayed))
	}
	counted := l.droppedPerSecond()
	for s := range max(len(counted), len(told.DroppedPerSecond)) {
		if in, want := at0(told.DroppedPerSecond, s), at0(counted, s); in != want {
			k.inReport(l, fmt.Sprintf("second %d: %d dropped in the report, %d by the packets", s, in, want))
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

// failures counts the dropped and the delayed attempts by the packets.
func (l *lane) failures() (dropped, delayed int) {
	for i := range l.attempts {
		switch a := &l.attempts[i]; {
		case l.seen[i].dropped(a):
			dropped++
		case l.seen[i].failed(a):
			delayed++
		}
	}
	return dropped, delayed
}

// droppedPerSecond counts the dropped attempts of each second of the run by the packets.
func (l *lane) droppedPerSecond() (n []int) {
	for i := range l.attempts {
		a := &l.attempts[i]
		if !l.seen[i].dropped(a) {
			continue
		}
		second := int(a.Intended / time.Second)
		n = append(n, make([]int, max(0, second+1-len(n)))...)
		n[second]++
	}
	return n
}

// at0 is an element of a list, and 0 beyond its end.
func at0(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// compareOutages compares the outages of the report with the packets: the times of the first and last failure, and the number of failures.
// Each failure must lie in an outage, and no good attempt over the same node may.
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
		counted[o].add(a)
	}
	for i, o := range told.Outages {
		if c := counted[i]; c.failed != o.Failed() || c.from != o.From || c.to != o.To {
			k.inReport(l, fmt.Sprintf("outage over %q from %s to %s with %d failed attempts in the report; from %s to %s with %d by the packets",
				o.Node, units.At(o.From), units.At(o.To), o.Failed(), units.At(c.from), units.At(c.to), c.failed))
		} else {
			k.compareLength(l, o, c)
		}
	}
}

// compareLength compares the bounds of an outage's length with the packets: its failures last at least the lower bound, and the good
// attempts before and after them over the same node are not closer than the upper one.
func (k *check) compareLength(l *lane, o analysis.OutageReport, c outageCount) {
	const rounding = 0.001 // milliseconds
	if span := (o.To - o.From) * 1e3; o.LowerMs > span+rounding || o.UpperMs < span-rounding {
		k.inReport(l, fmt.Sprintf("outage over %q from %s to %s: it lasts %s in the report", o.Node, units.At(o.From), units.At(o.To), units.Range(o.LowerMs, o.UpperMs)))
	}
	var before, after *record.Attempt
	for i := range l.attempts { // in the order of their starts
		a, s := &l.attempts[i], l.seen[i]
		path := s.node == o.Node || o.Node == "" && l.terminated() // every attempt over a node passes the load balancer
		if !path || a.Class == record.Probe || s.failed(a) {
			continue
		}
		switch {
		case a.Start < c.began:
			before = a
		case a.Start > c.ended && after == nil:
			after = a
		case a.Start < c.ended:
			k.found(OtherReport, l, a, fmt.Sprintf("%s by the packets, in the outage over %q from %s to %s", s.outcome, o.Node, units.At(o.From), units.At(o.To)))
			return
		}
	}
	if before == nil || after == nil {
		return
	}
	most := max(after.Intended-before.Intended, after.Start-before.Start) + after.Connect + tolerance
	if o.UpperMs > units.MillisUp(most) {
		k.inReport(l, fmt.Sprintf("outage over %q from %s to %s: it lasts up to %s in the report, and the good attempts around it are at most %s apart",
			o.Node, units.At(o.From), units.At(o.To), units.MsText(o.UpperMs), most))
	}
}

// outageCount is what the packets say about an outage of the report. Times are seconds of the run.
type outageCount struct {
	from, to     float64
	began, ended time.Duration // starts of the first and last failure
	failed       int
}

func (c *outageCount) add(a *record.Attempt) {
	at := units.Seconds(a.Intended)
	if c.failed == 0 {
		c.from, c.to, c.began, c.ended = at, at, a.Start, a.Start
	}
	c.from, c.to = min(c.from, at), max(c.to, at)
	c.began, c.ended = min(c.began, a.Start), max(c.ended, a.Start)
	c.failed++
}

func (k *check) inReport(l *lane, text string) {
	k.result.add(Finding{Kind: OtherReport, Lane: l.Name, Text: text})
}
