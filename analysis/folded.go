package analysis

import (
	"math"
	"time"

	"github.com/hitless/hitless/record"
)

// ofBucket is the number of records that are of a bucket. No attempt has it, see analysis.readAttempts.
const ofBucket = math.MaxUint32

// folded is what a lane has in buckets, beside the records that stand for them.
type folded struct {
	attempts               int
	spans                  []record.Span // their numbers
	late, latency, connect record.Bins
	slowest                time.Duration
	to                     time.Duration // the last intended start
}

// plausibleBucket reports whether numbers and times are possible ones.
func plausibleBucket(b *record.Bucket) bool {
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
func (l *Lane) takeBucket(b *record.Bucket, names *namer) {
	f := &l.folded
	if f.late == nil {
		f.late, f.latency, f.connect = record.Bins{}, record.Bins{}, record.Bins{}
	}
	f.late.Merge(b.Late)
	f.latency.Merge(b.Latency)
	f.connect.Merge(b.Connect)
	f.slowest = max(f.slowest, b.Slowest)
	for _, s := range b.Spans {
		f.spans = addSpan(f.spans, s)
	}
	ts := names.a.Paths.Of(l.Frontend())
	for _, g := range b.Groups {
		table := ts.MembersAt(g.Table)
		l.Records = append(l.Records, Sample{Intended: g.From, Seq: ofBucket, N: uint32(g.Count), Class: record.OK, Terminating: g.Terminating,
			epoch: int32(table), Node: names.node(g.Path), Backend: names.backend(g.Backend, g.Node, g.Generation)})
		f.attempts += int(g.Count)
		f.to = max(f.to, g.To)
	}
}

// addSpan appends a span, as the end of the last one if it goes on where that ended.
func addSpan(spans []record.Span, s record.Span) []record.Span {
	if n := len(spans); n > 0 && spans[n-1].First+spans[n-1].Count == s.First {
		spans[n-1].Count += s.Count
		return spans
	}
	return append(spans, s)
}

// DrawnGap is the gap between two attempts as a drawing has it: a bucket stands where its first attempt does.
func (l *Lane) DrawnGap() time.Duration {
	if l.folded.attempts > 0 {
		return max(l.Interval, record.BucketLength/15)
	}
	return l.Interval
}
