package record

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Bucket stands for good attempts of one lane, close to each other in time, that are of no interest one by one: see Thinner.
// It keeps what a report needs of them: their numbers, their paths, who answered, and how long they took.
type Bucket struct {
	Lane    uint16
	Spans   []Span
	Groups  []Group
	Late    Bins          // of the starts
	Latency Bins          // from the intended start to the answer
	Connect Bins          // time to connect, for datagrams to the answer; of those that have one
	Slowest time.Duration // the longest latency
}

// Span is a run of numbers of attempts.
type Span struct{ First, Count uint64 }

// Group is the part of a bucket that took one path to one backend.
type Group struct {
	Path                      string        // the node that the balancer chose; empty where none did
	Table                     time.Duration // an instant at which the balancer's table was the one that chose
	Backend, Node, Generation string        // who answered
	Terminating               bool          // it was shutting down
	Client                    string        // see Attempt.Client
	From, To                  time.Duration // intended starts of the first and the last
	Count                     uint64
}

// Attempts is the number of attempts that the bucket stands for.
func (b *Bucket) Attempts() int {
	n := 0
	for _, g := range b.Groups {
		n += int(g.Count)
	}
	return n
}

// check finds what does not add up.
func (b *Bucket) check() error {
	var numbers, grouped uint64
	for _, s := range b.Spans {
		if s.Count == 0 || s.Count > math.MaxUint32 || s.First > math.MaxUint32 {
			return fmt.Errorf("a bucket of lane %d has %d attempts from number %d: the file is damaged", b.Lane, s.Count, s.First)
		}
		numbers += s.Count
	}
	for _, g := range b.Groups {
		if g.Count == 0 || g.Count > math.MaxUint32 || g.To < g.From {
			return fmt.Errorf("a bucket of lane %d has %d attempts from %v to %v: the file is damaged", b.Lane, g.Count, g.From, g.To)
		}
		grouped += g.Count
	}
	if numbers == 0 || grouped != numbers || b.Late.Count() != numbers || b.Latency.Count() != numbers || b.Connect.Count() > numbers {
		return fmt.Errorf("a bucket of lane %d does not add up: %d numbers, %d attempts, %d starts, %d answers: the file is damaged",
			b.Lane, numbers, grouped, b.Late.Count(), b.Latency.Count())
	}
	return nil
}

// WriteBucket appends a bucket: the frame 'B'.
func (w *AttemptWriter) WriteBucket(b *Bucket) error {
	if w.err != nil {
		return w.err
	}
	for _, g := range b.Groups {
		for _, s := range [...]string{g.Path, g.Backend, g.Node, g.Generation, g.Client} {
			w.define(s)
		}
	}
	out := binary.AppendUvarint(append(w.buf[:0], 'B'), uint64(b.Lane))
	out = binary.AppendUvarint(out, uint64(len(b.Spans)))
	var last uint64
	for _, s := range b.Spans {
		out = binary.AppendUvarint(binary.AppendVarint(out, int64(s.First-last)), s.Count)
		last = s.First + s.Count
	}
	out = binary.AppendUvarint(out, uint64(len(b.Groups)))
	for _, g := range b.Groups {
		for _, s := range [...]string{g.Path, g.Backend, g.Node, g.Generation, g.Client} {
			out = binary.AppendUvarint(out, w.strings[s])
		}
		terminating := uint64(0)
		if g.Terminating {
			terminating = 1
		}
		out = binary.AppendUvarint(out, g.Count<<1|terminating)
		for _, d := range [...]time.Duration{g.From, g.To - g.From, g.Table - g.From} {
			out = binary.AppendVarint(out, int64(d))
		}
	}
	for _, bins := range [...]Bins{b.Late, b.Latency, b.Connect} {
		out = bins.encode(out)
	}
	w.buf = binary.AppendVarint(out, int64(b.Slowest))
	for _, g := range b.Groups {
		w.head.cover(g.From, g.To)
	}
	w.put(w.buf)
	return w.full()
}

// encode appends the bins in order, each as its distance from the one before and its count.
func (b Bins) encode(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(len(b)))
	last := uint16(0)
	for _, bin := range slices.Sorted(maps.Keys(b)) {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(bin-last)), b[bin])
		last = bin
	}
	return out
}

// mostOfBucket is more spans, groups or bins than a bucket has; a damaged count must not ask for memory.
const mostOfBucket = 1 << 20

// bucket reads a frame 'B' after its letter.
func (r *AttemptReader) bucket() (*Bucket, error) {
	f := fields{r: r}
	b := &Bucket{Lane: uint16(f.uint())}
	var last uint64
	for range f.length() {
		s := Span{First: last + uint64(f.int())}
		s.Count = f.uint()
		last = s.First + s.Count
		if b.Spans = append(b.Spans, s); f.err != nil {
			break
		}
	}
	for range f.length() {
		var g Group
		for _, s := range []*string{&g.Path, &g.Backend, &g.Node, &g.Generation, &g.Client} {
			*s = f.word()
		}
		count := f.uint()
		g.Count, g.Terminating = count>>1, count&1 == 1
		g.From = time.Duration(f.int())
		g.To, g.Table = g.From+time.Duration(f.int()), g.From+time.Duration(f.int())
		if b.Groups = append(b.Groups, g); f.err != nil {
			break
		}
	}
	for _, bins := range []*Bins{&b.Late, &b.Latency, &b.Connect} {
		*bins = f.bins()
	}
	b.Slowest = time.Duration(f.int())
	if f.err == nil {
		f.err = b.check()
	}
	return b, f.err
}

// length is a count of what follows.
func (f *fields) length() uint64 {
	n := f.uint()
	if f.err == nil && n > mostOfBucket {
		f.err = fmt.Errorf("a bucket with %d parts in the attempts: the file is damaged", n)
	}
	if f.err != nil {
		return 0
	}
	return n
}

func (f *fields) bins() Bins {
	b := Bins{}
	last := uint64(0)
	for range f.length() {
		last += f.uint()
		n := f.uint()
		if f.err == nil && (last > math.MaxUint16 || n == 0 || n > math.MaxUint32) {
			f.err = fmt.Errorf("%d durations of kind %d in a bucket of the attempts: the file is damaged", n, last)
		}
		if f.err != nil {
			break
		}
		b[uint16(last)] += n
	}
	return b
}

// Bins is a histogram of durations. Bins are less than 1 % wide; durations below 256 ns are exact. The map is sparse, because a
// thinned record has three histograms for each second of each lane; a dense one of the same range takes 47 kB.
type Bins map[uint16]uint64

const binBits = 7 // of a duration's leading bits

// binOf is the number of the bin of a duration; negative ones are 0.
func binOf(d time.Duration) uint16 {
	v := uint64(max(d, 0))
	shift := max(0, bits.Len64(v)-binBits-1)
	return uint16(shift<<binBits + int(v>>shift))
}

// binTop is the longest duration of a bin.
func binTop(bin uint16) time.Duration {
	const full = 1 << binBits
	shift := max(0, int(bin)/full-1)
	return time.Duration((uint64(int(bin)-shift*full)+1)<<shift - 1)
}

// Add counts a duration n times. A negative one counts as 0.
func (b Bins) Add(d time.Duration, n uint64) { b[binOf(d)] += n }

// Merge adds the counts of another histogram.
func (b Bins) Merge(o Bins) {
	for bin, n := range o {
		b[bin] += n
	}
}

// Count is the number of durations.
func (b Bins) Count() uint64 {
	var n uint64
	for _, k := range b {
		n += k
	}
	return n
}

// Weighted is a value that stands for several.
type Weighted struct {
	Value time.Duration
	N     uint64
}

// Quantile returns the q-quantile (0 to 1): the longest duration of its bin. It is 0 for an empty histogram.
func (b Bins) Quantile(q float64) time.Duration { return QuantileOf(b.Append(nil), q) }

// Append appends the longest duration of each bin with the bin's count, in order.
func (b Bins) Append(values []Weighted) []Weighted {
	for _, bin := range slices.Sorted(maps.Keys(b)) {
		values = append(values, Weighted{binTop(bin), b[bin]})
	}
	return values
}

// QuantileOf returns the q-quantile (0 to 1) of values, which it puts in order: the smallest with at least that share at or
// below it.
func QuantileOf(values []Weighted, q float64) time.Duration {
	byValue := func(a, b Weighted) int { return int(max(-1, min(1, a.Value-b.Value))) }
	if !slices.IsSortedFunc(values, byValue) {
		slices.SortFunc(values, byValue)
	}
	var all uint64
	for _, v := range values {
		all += v.N
	}
	var below uint64
	for _, v := range values {
		if below += v.N; float64(below) >= q*float64(all) {
			return v.Value
		}
	}
	return 0
}
