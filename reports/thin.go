package reports

import (
	"cmp"
	"slices"
	"time"
)

// The measures of thinning.
const (
	nearby    = 2 * time.Second        // on both sides of a failure and of an event, attempts are kept one by one
	thinRate  = 10                     // attempts a second below which a lane is kept whole
	fewest    = 8                      // fewer attempts than this take less room one by one
	tellSlack = time.Second            // how late an outcome or an event may be told and still count in time
	perBucket = time.Second            // how long a bucket is
	late      = latenessLimit          // an attempt later than this is kept: whether a lane fell behind is judged exactly
	thinBatch = 100 * time.Millisecond // attempts are looked at in batches of this length
)

// Thinner writes attempts one by one near failures and events, and as Buckets elsewhere, so that the room of a record does
// not grow with good attempts. Verdict, outages, their bounds and all counts of a report are the same as those of the whole
// record; its quantiles of the latency differ by less than 1 %.
//
// What it keeps one by one: all attempts that are not plainly good, or started more than 2 ms late; those within 2 s of
// such a one or of an event; and on each path the good ones before and after. It keeps whole lanes that prove the
// detector or have no schedule, that make fewer than ten attempts a second, or that a balancer serves and whose path cannot be told from an
// attempt alone: all but tcp-new and udp-fresh, and all where the balancer's log tells it.
//
// An attempt waits until all that decides about it is known: 3 s and the lane's deadlines. That, and a bucket or two for
// each lane, is all that it holds. It is not safe for concurrent use; it needs all events, in the order of recording.
type Thinner struct {
	w     *AttemptWriter
	known *analysis // the lanes and tables of the balancer so far
	lanes map[uint16]*thinLane
	marks []time.Duration // of failures and events, in order
	now   time.Duration   // the latest that is known to have happened
}

// NewThinner returns one that writes to w.
func NewThinner(w *AttemptWriter) *Thinner {
	return &Thinner{w: w, known: newAnalysis(Run{}), lanes: map[uint16]*thinLane{}}
}

// thinLane is a lane with its attempts that wait.
type thinLane struct {
	*lane
	waiting []Attempt // ordered by start
	paths   map[pathKey]*thinPath
	open    []*openBucket
}

// thinPath is a path as far as its attempts were looked at.
type thinPath struct {
	good bool      // the last one was
	held *openGood // good, and may go into a bucket if the next one is good, too
}

// openGood is an attempt that may go into a bucket.
type openGood struct {
	attempt Attempt
	way     choice
}

// Event takes note of an event.
func (t *Thinner) Event(e Event) {
	if e.Kind == EventFlows || e.Kind == EventChoice || e.Kind == EventLog {
		return
	}
	t.mark(e.At)
	if _, table, err := tableOf(e); e.Kind == EventBalancer && err == nil {
		t.mark(table.from)
	}
	before := len(t.known.lanes)
	t.known.take(e)
	for _, l := range t.known.lanes[before:] {
		if (!l.control || l.role == RolePod) && l.rate >= thinRate {
			t.lanes[l.id] = &thinLane{lane: l, paths: map[pathKey]*thinPath{}}
		}
	}
}

// Attempt takes an attempt whose outcome is known. The writer's first error sticks and is returned.
func (t *Thinner) Attempt(a Attempt) error {
	t.now = max(t.now, a.Start+a.Total)
	if !plain(&a) {
		t.mark(a.Start)
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
	until := t.now - nearby - l.deadline - tellSlack
	if l.waiting[0].Start > until-thinBatch {
		return nil
	}
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

// forget lets go of marks that no waiting attempt is near to.
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
	ts := t.known.tables[l.frontend()]
	if len(ts) > 0 && (ts.logged() || !(l.opens() || l.protocol == protocolFresh)) {
		return t.w.Write(*a)
	}
	way := t.known.way(l.lane, a)
	key := pathKey{t.node(way.node), ts.memberSince(way.node, int32(way.epoch))}
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
		p.held = &openGood{*a, way}
		return nil
	}
	if a.Class != Probe {
		p.good = good
	}
	return t.w.Write(*a)
}

// node numbers the paths' nodes.
func (t *Thinner) node(name string) uint16 {
	i := slices.Index(t.known.nodes, name)
	if i < 0 {
		i = len(t.known.nodes)
		t.known.nodes = append(t.known.nodes, name)
	}
	return uint16(i)
}

// release lets the path's last attempt go, now that the next one is known.
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
	at := g.attempt.Intended / perBucket
	i := slices.IndexFunc(l.open, func(b *openBucket) bool { return b.at == at })
	if i < 0 {
		l.open = append(l.open, newOpenBucket(l.id, at))
		i = len(l.open) - 1
	}
	l.open[i].add(l.lane, g)
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

// Close writes what waits: the attempts one by one, because nobody knows what came after.
func (t *Thinner) Close() error {
	var rest []Attempt
	for _, l := range t.known.lanes {
		tl := t.lanes[l.id]
		if tl == nil {
			continue
		}
		for _, p := range tl.paths {
			if p.held != nil {
				rest = append(rest, p.held.attempt)
			}
		}
		rest = append(rest, tl.waiting...)
		for _, b := range tl.open {
			_ = b.write(t.w) // the error sticks
		}
		tl.paths, tl.waiting, tl.open = map[pathKey]*thinPath{}, nil, nil
	}
	slices.SortFunc(rest, func(x, y Attempt) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Lane, y.Lane), cmp.Compare(x.Seq, y.Seq))
	})
	for _, a := range rest {
		_ = t.w.Write(a) // likewise
	}
	return t.w.Flush()
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

func (b *openBucket) add(l *lane, g *openGood) {
	a := &g.attempt
	b.seq = append(b.seq, a.Seq)
	if len(b.seq) < fewest {
		b.few = append(b.few, *a)
	} else {
		b.few = nil
	}
	b.Late.add(a.Lateness(), 1)
	took := time.Duration(saturate(a.Lateness())) + time.Duration(saturate(a.Total/time.Microsecond))*time.Microsecond
	b.Latency.add(took, 1)
	b.Slowest = max(b.Slowest, took)
	if connect := l.connectOf(a); connect > 0 {
		b.Connect.add(connect, 1)
	}
	one := Group{Path: g.way.node, Table: a.Start, Backend: a.Backend, Node: a.Node, Generation: a.Generation,
		Terminating: a.Terminating > 0, From: a.Intended, To: a.Intended, Count: 1}
	for i := range b.Groups {
		if o := &b.Groups[i]; o.Path == one.Path && o.Backend == one.Backend && o.Node == one.Node && o.Generation == one.Generation &&
			o.Terminating == one.Terminating && b.epochs[i] == g.way.epoch {
			o.From, o.To, o.Count = min(o.From, one.From), max(o.To, one.To), o.Count+1
			return
		}
	}
	b.Groups, b.epochs = append(b.Groups, one), append(b.epochs, g.way.epoch)
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
