package reports

import (
	"math"
	"time"
)

// ofBucket is the number of records that are of a bucket. No attempt has it, see analysis.readAttempts.
const ofBucket = math.MaxUint32

// folded is what a lane has in buckets, beside the records that stand for them.
type folded struct {
	attempts               int
	spans                  []Span // their numbers
	late, latency, connect Bins
	slowest                time.Duration
	to                     time.Duration // the last intended start
}

// attempts is how many a bucket stands for.
func (b *Bucket) attempts() int {
	n := 0
	for _, g := range b.Groups {
		n += int(g.Count)
	}
	return n
}

// plausible reports whether numbers and times are possible ones.
func (b *Bucket) plausible() bool {
	for _, g := range b.Groups {
		if !plausible(g.From) || !plausible(g.To) || !plausible(g.Table) {
			return false
		}
	}
	for _, s := range b.Spans {
		if s.First+s.Count > math.MaxUint32-1 {
			return false
		}
	}
	return true
}

// takeBucket adds a bucket to the lane: a record for each of its groups, and what is not told by group.
func (l *lane) takeBucket(b *Bucket, names *namer) {
	f := &l.folded
	if f.late == nil {
		f.late, f.latency, f.connect = Bins{}, Bins{}, Bins{}
	}
	f.late.merge(b.Late)
	f.latency.merge(b.Latency)
	f.connect.merge(b.Connect)
	f.slowest = max(f.slowest, b.Slowest)
	for _, s := range b.Spans {
		f.spans = addSpan(f.spans, s)
	}
	ts := names.a.tables[l.frontend()]
	for _, g := range b.Groups {
		table, _ := ts.around(&Attempt{Start: g.Table}, 0)
		l.records = append(l.records, record{intended: g.From, seq: ofBucket, n: uint32(g.Count), class: OK, terminating: g.Terminating,
			epoch: int32(table), node: names.node(g.Path), backend: names.backend(g.Backend, g.Node, g.Generation)})
		f.attempts += int(g.Count)
		f.to = max(f.to, g.To)
	}
}

// addSpan appends a span, as the end of the last one if it goes on where that ended.
func addSpan(spans []Span, s Span) []Span {
	if n := len(spans); n > 0 && spans[n-1].First+spans[n-1].Count == s.First {
		spans[n-1].Count += s.Count
		return spans
	}
	return append(spans, s)
}

// drawnGap is the gap between two attempts as a drawing has it: a bucket stands where its first attempt does.
func (l *lane) drawnGap() time.Duration {
	if l.folded.attempts > 0 {
		return max(l.gap, perBucket/15)
	}
	return l.gap
}
