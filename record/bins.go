package record

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

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
