package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// Lane is a declared lane with its part of the record.
type Lane struct {
	*record.DeclaredLane
	fleet      worker        // of a fleet's worker; without a name for lanes of this machine
	Records    []Sample      // ordered by actual start, then number
	attempts   int           // in records
	folded     folded        // buckets of records
	connect    time.Duration // median time to connect of good attempts; to the answer for datagrams
	Begin, end time.Duration // first intended start; last intended start and one interval
	ended      time.Duration // when it ended before the run, because of its Service; 0 if it did not
	unlogged   int           // answered attempts that the load balancer's log lacks
	latest     time.Duration // the longest time from when an attempt was due to its start
	Outages    []*Outage     // ordered by start
}

// Sample is one attempt, or the attempts of a bucket on one path to one backend. It has 48 bytes, because a report keeps millions.
// Lateness and connect time saturate at 4.29 s.
type Sample struct {
	Intended    time.Duration
	late        uint32 // ns
	connect     uint32 // ns, for datagrams to the answer; 0 when it was never established, or only after a retransmission
	total       uint32 // µs
	Seq         uint32
	N           uint32 // number of attempts; those of a bucket are good, and lane.folded has their numbers and times
	Backend     uint32 // index of analysis.backends; 0 when none answered
	epoch       int32  // index of the membership that applied; -1 for none
	Node        uint16 // index of analysis.nodes: the node of the path
	Client      uint16 // index of analysis.Clients: the address that the pod saw
	Class       record.Class
	Terminating bool // the backend said that it was shutting down
}

func (r *Sample) Start() time.Duration { return r.Intended + time.Duration(r.late) }

// end is when the attempt was answered or had failed.
func (r *Sample) end() time.Duration { return r.Start() + time.Duration(r.total)*time.Microsecond }

// bucket reports whether the sample stands for a bucket.
func (r *Sample) bucket() bool { return r.Seq == ofBucket }

func (r *Sample) failed() bool { return r.Class != record.OK && r.Class != record.Probe }

func saturate(d time.Duration) uint32 {
	return uint32(min(max(d, 0), math.MaxUint32))
}

// laneOf reads the declaration of a lane. An impossible declaration is an error.
func laneOf(at time.Duration, declared record.Lane) (*Lane, error) {
	d, err := record.Declare(at, declared)
	if err != nil {
		return nil, err
	}
	return &Lane{DeclaredLane: d, fleet: worker{name: d.Worker, wanted: d.Workers, joined: d.Joined}}, nil
}

// endedUnused reports whether the lane's Service changed before the first attempt was due.
func (l *Lane) endedUnused() bool { return l.ended > 0 && l.ended <= l.Declared }

// settle orders the samples and computes the values that depend on all of them.
func (l *Lane) settle() {
	byStart := func(a, b Sample) int { return cmp.Or(cmp.Compare(a.Start(), b.Start()), cmp.Compare(a.Seq, b.Seq)) }
	if !slices.IsSortedFunc(l.Records, byStart) {
		slices.SortFunc(l.Records, byStart)
	}
	connects := record.Bins{}
	connects.Merge(l.folded.connect)
	l.attempts = 0
	for i := range l.Records {
		r := &l.Records[i]
		l.attempts += int(r.N)
		if i == 0 {
			l.Begin = min(r.Intended, r.Start())
		}
		l.Begin = min(l.Begin, r.Intended)
		l.latest = max(l.latest, r.Start()-r.Intended)
		l.end = max(l.end, r.Intended+l.Interval, r.Start()+time.Duration(r.connect))
		if r.Class == record.OK && r.connect > 0 {
			connects.Add(time.Duration(r.connect), 1)
		}
	}
	l.end = max(l.end, l.folded.to+l.Interval*time.Duration(min(1, l.folded.attempts)))
	// The median of bins, so that a thinned record gives the same bounds of outages.
	l.connect = record.QuantileOf(connects.Append(nil), 0.5)
}

// reach bounds the time from the start of an attempt until its first packet is at the node.
func (l *Lane) reach(r *Sample) time.Duration {
	if r.connect > 0 {
		return time.Duration(r.connect)
	}
	return l.connect
}

// lost counts the attempt numbers that are missing or double. It counts those in missing records separately.
func (l *Lane) lost() (missing, stated, twice int) {
	spans := slices.Clone(l.folded.spans)
	for i := range l.Records {
		if r := &l.Records[i]; !r.bucket() {
			spans = addSpan(spans, record.Span{First: uint64(r.Seq), Count: 1})
		}
	}
	slices.SortFunc(spans, func(a, b record.Span) int { return cmp.Compare(a.First, b.First) })
	var next uint64
	for _, s := range spans {
		if s.First > next {
			known := l.fleet.gapBefore(next, s.First)
			missing, stated = missing+int(s.First-next)-known, stated+known
		}
		twice += int(min(s.First+s.Count, max(next, s.First)) - s.First)
		next = max(next, s.First+s.Count)
	}
	return missing, stated, twice
}

// Quantile returns the q-quantile (0 to 1) of ordered values: the smallest value with at least that share at or below it.
func Quantile[T any](ordered []T, q float64) T {
	var none T
	if len(ordered) == 0 {
		return none
	}
	at := int(math.Ceil(q*float64(len(ordered)))) - 1
	return ordered[min(max(at, 0), len(ordered)-1)]
}

// RecordAt is the index of the first sample that started at or after an instant.
func (l *Lane) RecordAt(at time.Duration) int {
	i, _ := slices.BinarySearchFunc(l.Records, at, func(r Sample, t time.Duration) int { return cmp.Compare(r.Start(), t) })
	return i
}

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
			epoch: int32(table), Node: names.node(g.Path), Backend: names.backend(g.Backend, g.Node, g.Generation), Client: names.client(g.Client)})
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
