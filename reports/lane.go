package reports

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/hitless/hitless/record"
)

// lane is a declared lane with all that the record has of it.
type lane struct {
	*record.DeclaredLane
	fleet      worker        // of a fleet's worker; without a name for lanes of this machine
	records    []sample      // ordered by actual start, then number
	attempts   int           // in records
	folded     folded        // buckets of records
	connect    time.Duration // median time to connect of good attempts; to the answer for datagrams
	begin, end time.Duration // first intended start; last intended start and one interval
	unlogged   int           // answered, but not in the log of the load balancer that chose the node
	outages    []*outage     // ordered by start
}

// sample is one attempt, or a bucket's attempts on one path to one backend, in 40 bytes because a report keeps millions of them. Lateness and connect time saturate at
// 4.29 s, which is beyond everything that they are used for.
type sample struct {
	intended    time.Duration
	late        uint32 // ns
	connect     uint32 // ns, for datagrams to the answer; 0 when it was never established, or only after a retransmission
	total       uint32 // µs
	seq         uint32
	n           uint32 // how many attempts it is; a bucket's are good, and their numbers and times stand in lane.folded
	backend     uint32 // index of analysis.backends; 0 when none answered
	epoch       int32  // index of the balancer's table that applied; -1 when none did
	node        uint16 // index of analysis.nodes: the node of the path
	class       record.Class
	terminating bool // the backend said that it was shutting down
}

func (r *sample) start() time.Duration { return r.intended + time.Duration(r.late) }

// bucket reports whether it is of a bucket, whose numbers and times stand elsewhere.
func (r *sample) bucket() bool { return r.seq == ofBucket }

func (r *sample) failed() bool { return r.class != record.OK && r.class != record.Probe }

func saturate(d time.Duration) uint32 {
	return uint32(min(max(d, 0), math.MaxUint32))
}

// laneOf reads the declaration of a lane. One that cannot be read is an error, because no verdict may rest on a guess.
func laneOf(at time.Duration, declared record.Lane) (*lane, error) {
	d, err := record.Declare(at, declared)
	if err != nil {
		return nil, err
	}
	return &lane{DeclaredLane: d, fleet: worker{name: d.Worker, wanted: d.Workers, joined: d.Joined}}, nil
}

// settle orders the records and computes what depends on all of them.
func (l *lane) settle() {
	byStart := func(a, b sample) int { return cmp.Or(cmp.Compare(a.start(), b.start()), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(l.records, byStart) {
		slices.SortFunc(l.records, byStart)
	}
	connects := record.Bins{}
	connects.Merge(l.folded.connect)
	l.attempts = 0
	for i := range l.records {
		r := &l.records[i]
		l.attempts += int(r.n)
		if i == 0 {
			l.begin = min(r.intended, r.start())
		}
		l.begin = min(l.begin, r.intended)
		l.end = max(l.end, r.intended+l.Interval, r.start()+time.Duration(r.connect))
		if r.class == record.OK && r.connect > 0 {
			connects.Add(time.Duration(r.connect), 1)
		}
	}
	l.end = max(l.end, l.folded.to+l.Interval*time.Duration(min(1, l.folded.attempts)))
	// Of bins, so that a thinned record has the same: bounds of outages rest on it.
	l.connect = record.QuantileOf(connects.Append(nil), 0.5)
}

// reach is how long after its start the first packet of an attempt had certainly reached the node.
func (l *lane) reach(r *sample) time.Duration {
	if r.connect > 0 {
		return time.Duration(r.connect)
	}
	return l.connect
}

// lost counts the numbers missing from the lane's sequence and those that stand in it more than once. What a stated gap has
// is missing with notice, and counted apart.
func (l *lane) lost() (missing, stated, twice int) {
	spans := slices.Clone(l.folded.spans)
	for i := range l.records {
		if r := &l.records[i]; !r.bucket() {
			spans = addSpan(spans, record.Span{First: uint64(r.seq), Count: 1})
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

// quantile returns the q-quantile (0 to 1) of ordered values: the smallest value with at least that share at or below it.
func quantile[T any](ordered []T, q float64) T {
	var none T
	if len(ordered) == 0 {
		return none
	}
	at := int(math.Ceil(q*float64(len(ordered)))) - 1
	return ordered[min(max(at, 0), len(ordered)-1)]
}

// recordAt is the number of the first record that started at or after an instant.
func (l *lane) recordAt(at time.Duration) int {
	i, _ := slices.BinarySearchFunc(l.records, at, func(r sample, t time.Duration) int { return cmp.Compare(r.start(), t) })
	return i
}
