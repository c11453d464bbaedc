package compare

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/hitless/hitless/analysis"
)

// The seed of the resampling is fixed, so that equal runs give equal comparisons.
const (
	resamples    = 4000
	resampleSeed = 20260101
)

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return middleOf(slices.Sorted(slices.Values(values)))
}

// middleOf is the median of one or more sorted values.
func middleOf(ordered []float64) float64 {
	middle := len(ordered) / 2
	if len(ordered)%2 == 1 {
		return ordered[middle]
	}
	return (ordered[middle-1] + ordered[middle]) / 2
}

// bootstrapMedian is the 95 % percentile interval of the median of one or more values.
func bootstrapMedian(values []float64) (low, high float64) {
	if least, most := slices.Min(values), slices.Max(values); least == most {
		return least, most
	}
	random := rand.New(rand.NewPCG(resampleSeed, uint64(len(values))))
	medians, sample := make([]float64, resamples), make([]float64, len(values))
	for i := range medians {
		for k := range sample {
			sample[k] = values[random.IntN(len(values))]
		}
		slices.Sort(sample)
		medians[i] = middleOf(sample)
	}
	slices.Sort(medians)
	return analysis.Quantile(medians, 0.025), analysis.Quantile(medians, 0.975)
}

// permutationShare is the p-value of a permutation test of the means of two groups, 0 to 1. It counts all arrangements of up to
// fewEnough values, and samples the arrangements of more values.
func permutationShare(a, b []float64) float64 {
	pool := slices.Concat(a, b)
	limit := math.Abs(mean(a)-mean(b)) * (1 - 1e-12)
	extreme, all := 0, 0
	judge := func(inA func(int) bool) {
		var sums [2]float64
		for i, v := range pool {
			if inA(i) {
				sums[0] += v
			} else {
				sums[1] += v
			}
		}
		all++
		if math.Abs(sums[0]/float64(len(a))-sums[1]/float64(len(b))) >= limit {
			extreme++
		}
	}
	const fewEnough = 16 // values, with at most 12,870 arrangements
	if len(pool) <= fewEnough {
		for set := uint(0); set < 1<<len(pool); set++ {
			if bits.OnesCount(set) == len(a) {
				judge(func(i int) bool { return set>>i&1 == 1 })
			}
		}
		return float64(extreme) / float64(all)
	}
	random := rand.New(rand.NewPCG(resampleSeed, uint64(len(pool))))
	judge(func(i int) bool { return i < len(a) }) // the given arrangement counts too
	for range resamples {
		order := random.Perm(len(pool))
		judge(func(i int) bool { return order[i] < len(a) })
	}
	return float64(extreme) / float64(all)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
