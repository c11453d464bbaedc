package analysis

import (
	"math"
	"time"

	"github.com/hitless/hitless/record"
)

// ofBucket is the attempt number of samples that stand for a bucket. No attempt has it, see analysis.readAttempts.
const ofBucket = math.MaxUint32

// folded has the numbers and times of a lane's buckets, in addition to the samples that stand for them.
type folded struct {
	attempts               int
	spans                  []record.Span // their numbers
	late, latency, connect record.Bins
	before, after          speed // the same of latency and connect, by the begin of the scenario
	slowest                time.Duration
	to                     time.Duration // last scheduled start
}

// plausibleBucket reports whether the numbers and times are possible.
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

// takeBucket adds a bucket to the lane: a sample for each of its groups, and the data that groups lack.
func (l *Lane) takeBucket(b *record.Bucket, names *namer) {
	f := &l.folded
	if f.late == nil {
		f.late, f.latency, f.connect = record.Bins{}, record.Bins{}, record.Bins{}
		f.before, f.after = speed{record.Bins{}, record.Bins{}}, speed{record.Bins{}, record.Bins{}}
	}
	f.late.Merge(b.Late)
	f.latency.Merge(b.Latency)
	f.connect.Merge(b.Connect)
	if s := (speed{b.Connect, b.Latency}); len(b.Groups) > 0 && b.Groups[0].From < names.a.began {
		f.before.merge(s)
	} else {
		f.after.merge(s)
	}
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

// addSpan appends a span. It extends the last span if the new one continues it.
func addSpan(spans []record.Span, s record.Span) []record.Span {
	if n := len(spans); n > 0 && spans[n-1].First+spans[n-1].Count == s.First {
		spans[n-1].Count += s.Count
		return spans
	}
	return append(spans, s)
}

// DrawnGap is the interval between two attempts in a drawing, where a bucket is at the time of its first attempt.
func (l *Lane) DrawnGap() time.Duration {
	if l.folded.attempts > 0 {
		return max(l.Interval, record.BucketLength/15)
	}
	return l.Interval
}
