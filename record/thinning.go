package record

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// LatenessLimit is how late an attempt may start, or the lane's interval if that is larger: measured in the virtual-clock guest,
// 1.7 ms under churn.
const LatenessLimit = 2 * time.Millisecond

// The measures of thinning.
const (
	nearby       = 2 * time.Second        // on both sides of a failure and of an event, attempts are kept one by one
	thinRate     = 10                     // attempts a second below which a lane is kept whole
	fewest       = 8                      // fewer attempts than this take less room one by one
	tellSlack    = time.Second            // how late an outcome or an event may be told and still count in time
	BucketLength = time.Second            // how long a bucket is
	late         = LatenessLimit          // an attempt later than this is kept: whether a lane fell behind is judged exactly
	thinBatch    = 100 * time.Millisecond // attempts are looked at in batches of this length
)

// Thinner writes attempts one by one near failures and events, and as Buckets elsewhere, so that the room of a record does
// not grow with good attempts. Verdict, outages, their bounds and all counts of a report are the same as those of the whole
// record; its quantiles of the latency differ by less than 1 %.
//
// What it keeps one by one: all attempts that are not plainly good, or started more than 2 ms late; those within 2 s of
// such a one or of an event; and on each path the good ones before and after. It keeps whole lanes that prove the
// detector or have no schedule, that make fewer than ten attempts a second, and lanes behind a load balancer whose path cannot be
// computed from an attempt alone: all but tcp-new and udp-fresh, and all where the load balancer's log gives the path.
//
// An attempt waits until all that decides about it is known: 3 s and the lane's deadlines. Memory holds only these and a bucket
// or two for each lane. It is not safe for concurrent use; it needs all events, in the order of recording.
type Thinner struct {
	w     *AttemptWriter
	paths *Paths
	order []uint16 // ids of lanes, as declared
	lanes map[uint16]*thinLane
	ended []*thinLane     // whose last attempts wait
	marks []time.Duration // of failures and events, in order
	now   time.Duration   // the latest that is known to have happened
}

// NewThinner returns one that writes to w.
func NewThinner(w *AttemptWriter) *Thinner {
	return &Thinner{w: w, paths: NewPaths(), lanes: map[uint16]*thinLane{}}
}

// thinLane is a lane with its attempts that wait.
type thinLane struct {
	*DeclaredLane
	waiting []Attempt // ordered by start
	paths   map[pathKey]*thinPath
	open    []*openBucket
	end     time.Duration // of one that has ended
}

// thinPath is a path as far as its attempts were looked at.
type thinPath struct {
	good bool      // the last one was
	held *openGood // good, and may go into a bucket if the next one is good, too
}

// openGood is an attempt that may go into a bucket.
type openGood struct {
	attempt Attempt
	path    Path
}

// Event learns of lanes and memberships, and keeps what is near the event.
func (t *Thinner) Event(e Event) {
	switch body := e.Body.(type) {
	case Flows, Choice, Log:
		return
	case Membership:
		from := e.At
		if body.From != nil {
			from = min(*body.From, e.At)
		}
		t.mark(from)
		t.paths.AddMembers(e.At, body)
	case Lane:
		t.declare(e.At, body)
	case LaneEnd:
		if l := t.lanes[body.Lane]; l != nil {
			l.end = e.At
			t.ended = append(t.ended, l)
		}
	}
	t.mark(e.At)
}

// declare starts to thin a lane. Analysis reports a second declaration and one that is impossible as damage.
func (t *Thinner) declare(at time.Duration, lane Lane) {
	l, err := Declare(at, lane)
	if err != nil || slices.Contains(t.order, l.ID) {
		return
	}
	t.order = append(t.order, l.ID)
	if (!l.Control || l.Role == RolePod) && l.Rate >= thinRate {
		t.lanes[l.ID] = &thinLane{DeclaredLane: l, paths: map[pathKey]*thinPath{}}
	}
}

// pathKey tells the paths of a lane apart: a node that left and came back is another path.
type pathKey struct {
	node  string
	since int
}

// Attempt takes an attempt whose outcome is known. The writer's first error sticks and is returned.
func (t *Thinner) Attempt(a Attempt) error {
	t.now = max(t.now, a.Start+a.Total)
	if !plain(&a) {
		t.mark(a.Start)
	}
	if err := t.settleEnded(); err != nil {
		return err
	}
	l := t.lanes[a.Lane]
	if l == nil {
		return t.w.Write(a)
	}
	i := len(l.waiting)
	for i > 0 && l.waiting[i-1].Start > a.Start {
		i--
	}
	l.waiting = slices.Insert(l.waiting, i, a)
	until := t.known(l)
	if l.waiting[0].Start > until-thinBatch {
		return nil
	}
	return t.settle(l, until)
}

// known is the time until which all that decides about a lane's attempts is known.
func (t *Thinner) known(l *thinLane) time.Duration { return t.now - nearby - l.Deadline - tellSlack }

// settle decides about a lane's attempts until a time.
func (t *Thinner) settle(l *thinLane, until time.Duration) error {
	n := 0
	for ; n < len(l.waiting) && l.waiting[n].Start <= until; n++ {
		if err := t.decide(l, &l.waiting[n]); err != nil {
			return err
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	t.forget()
	return nil
}

// settleEnded decides about the last attempts of lanes that have ended, which have no later attempt that would. A killed writer loses
// what waits.
func (t *Thinner) settleEnded() error {
	for _, l := range t.ended {
		if err := t.settle(l, t.known(l)); err != nil {
			return err
		}
	}
	var over []*thinLane
	t.ended = slices.DeleteFunc(t.ended, func(l *thinLane) bool {
		if len(l.waiting) > 0 || t.known(l) <= l.end {
			return false
		}
		over = append(over, l)
		return true
	})
	t.finish(over)
	return t.w.err
}

// plain reports whether nothing about the attempt is of interest by itself.
func plain(a *Attempt) bool {
	return a.Class == OK && a.Retrans == 0 && a.Detail == "" && !a.Offender.IsValid()
}

// mark keeps what is near an instant.
func (t *Thinner) mark(at time.Duration) {
	i, known := slices.BinarySearch(t.marks, at)
	if !known {
		t.marks = slices.Insert(t.marks, i, at)
	}
}

func (t *Thinner) marked(at time.Duration) bool {
	i, _ := slices.BinarySearch(t.marks, at-nearby)
	return i < len(t.marks) && t.marks[i] <= at+nearby
}

// forget removes marks that no waiting attempt is near to.
func (t *Thinner) forget() {
	first := t.now
	for _, l := range t.lanes {
		if len(l.waiting) > 0 {
			first = min(first, l.waiting[0].Start)
		}
	}
	n, _ := slices.BinarySearch(t.marks, first-nearby-tellSlack)
	t.marks = slices.Delete(t.marks, 0, n)
}

// decide looks at an attempt when all that is near it is known.
func (t *Thinner) decide(l *thinLane, a *Attempt) error {
	ms := t.paths.Of(l.Frontend())
	if len(ms) > 0 && (ms.Logged() || !(l.Opens() || l.Protocol == ProtocolFresh)) {
		return t.w.Write(*a)
	}
	path := t.paths.Path(l.DeclaredLane, a)
	key := pathKey{path.Node, ms.MemberSince(path.Node, int32(path.Epoch))}
	p := l.paths[key]
	if p == nil {
		p = &thinPath{}
		l.paths[key] = p
	}
	good := a.Class == OK
	if a.Class != Probe { // which is no part of any path
		if err := t.release(l, p, good); err != nil {
			return err
		}
	}
	if p.good && plain(a) && a.Lateness() >= 0 && a.Lateness() <= late && !t.marked(a.Start) {
		p.held = &openGood{*a, path}
		return nil
	}
	if a.Class != Probe {
		p.good = good
	}
	return t.w.Write(*a)
}

// release writes or folds the path's last attempt, now that the next one is known.
func (t *Thinner) release(l *thinLane, p *thinPath, good bool) error {
	held := p.held
	if held == nil {
		return nil
	}
	p.held = nil
	if !good {
		return t.w.Write(held.attempt)
	}
	return t.fold(l, held)
}

// fold puts an attempt into the bucket of its time, and writes buckets that are over.
func (t *Thinner) fold(l *thinLane, g *openGood) error {
	at := g.attempt.Intended / BucketLength
	i := slices.IndexFunc(l.open, func(b *openBucket) bool { return b.at == at })
	if i < 0 {
		l.open = append(l.open, newOpenBucket(l.ID, at))
		i = len(l.open) - 1
	}
	l.open[i].add(l.DeclaredLane, g)
	var err error
	l.open = slices.DeleteFunc(l.open, func(b *openBucket) bool {
		over := b.at < at-1
		if over && err == nil {
			err = b.write(t.w)
		}
		return over
	})
	return err
}

// Close writes what waits: the attempts one by one, because their successors are unknown.
func (t *Thinner) Close() error {
	var all []*thinLane
	for _, id := range t.order {
		if l := t.lanes[id]; l != nil {
			all = append(all, l)
		}
	}
	t.finish(all)
	return t.w.Flush()
}

// finish writes what waits of lanes. The writer's first error sticks.
func (t *Thinner) finish(lanes []*thinLane) {
	var rest []Attempt
	for _, l := range lanes {
		for _, p := range l.paths {
			if p.held != nil {
				rest = append(rest, p.held.attempt)
			}
		}
		rest = append(rest, l.waiting...)
		for _, b := range l.open {
			_ = b.write(t.w)
		}
		l.paths, l.waiting, l.open = map[pathKey]*thinPath{}, nil, nil
	}
	slices.SortFunc(rest, func(x, y Attempt) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Lane, y.Lane), cmp.Compare(x.Seq, y.Seq))
	})
	for _, a := range rest {
		_ = t.w.Write(a)
	}
}

// openBucket is a bucket that is being filled.
type openBucket struct {
	Bucket
	at     time.Duration // its number in time
	seq    []uint64
	few    []Attempt // all of them, until they are enough for a bucket
	epochs []int     // of the groups: the number of the balancer's table
}

func newOpenBucket(id uint16, at time.Duration) *openBucket {
	return &openBucket{Bucket: Bucket{Lane: id, Late: Bins{}, Latency: Bins{}, Connect: Bins{}}, at: at}
}

func (b *openBucket) add(l *DeclaredLane, g *openGood) {
	a := &g.attempt
	b.seq = append(b.seq, a.Seq)
	if len(b.seq) < fewest {
		b.few = append(b.few, *a)
	} else {
		b.few = nil
	}
	b.Late.Add(a.Lateness(), 1)
	took := time.Duration(saturate(a.Lateness())) + time.Duration(saturate(a.Total/time.Microsecond))*time.Microsecond
	b.Latency.Add(took, 1)
	b.Slowest = max(b.Slowest, took)
	if connect := l.ConnectOf(a); connect > 0 {
		b.Connect.Add(connect, 1)
	}
	one := Group{Path: g.path.Node, Table: a.Start, Backend: a.Backend, Node: a.Node, Generation: a.Generation,
		Terminating: a.Terminating > 0, Client: a.Client, From: a.Intended, To: a.Intended, Count: 1}
	for i := range b.Groups {
		if o := &b.Groups[i]; o.Path == one.Path && o.Backend == one.Backend && o.Node == one.Node && o.Generation == one.Generation &&
			o.Terminating == one.Terminating && o.Client == one.Client && b.epochs[i] == g.path.Epoch {
			o.From, o.To, o.Count = min(o.From, one.From), max(o.To, one.To), o.Count+1
			return
		}
	}
	b.Groups, b.epochs = append(b.Groups, one), append(b.epochs, g.path.Epoch)
}

// write writes the bucket, or its attempts if they are few.
func (b *openBucket) write(w *AttemptWriter) error {
	if len(b.seq) < fewest {
		for _, a := range b.few {
			_ = w.Write(a)
		}
		return w.err
	}
	slices.Sort(b.seq)
	for _, seq := range b.seq {
		if n := len(b.Spans); n > 0 && b.Spans[n-1].First+b.Spans[n-1].Count == seq {
			b.Spans[n-1].Count++
		} else {
			b.Spans = append(b.Spans, Span{seq, 1})
		}
	}
	return w.WriteBucket(&b.Bucket)
}

// AttemptBytes is more than an attempt takes on average in attempts.bin: lanes of IPv4, runs of days, thousands of pods.
// Where every attempt stands there, the room of a record is a product that is known before the run.
const AttemptBytes = 64

// ThinnedSecondBytes is more than the bucket takes of a second in which nothing happens on a thinned lane: histograms have
// so many bins at any rate.
const ThinnedSecondBytes = 1750

// LaneBytes bounds the room of a lane's record: attempts a second, for so many seconds.
func LaneBytes(rate, seconds float64) float64 { return rate * seconds * AttemptBytes }

// ThinnedLaneBytes bounds the room of a lane's record when it is thinned and at most so many of its seconds are near an
// event or a failure. Lanes that Thinner keeps whole need LaneBytes.
func ThinnedLaneBytes(rate, seconds, eventful float64) float64 {
	if rate < thinRate {
		return LaneBytes(rate, seconds)
	}
	eventful = min(eventful, seconds)
	return LaneBytes(rate, eventful) + (seconds-eventful)*math.Min(ThinnedSecondBytes, rate*AttemptBytes)
}
