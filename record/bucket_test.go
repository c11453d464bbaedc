package record

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A quantile is at most 1 % above the exact one and never below it, whatever the histograms that were merged.
func TestBinsKeepQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durations := rapid.SliceOfN(rapid.Int64Range(0, int64(40*24*time.Hour)), 1, 200).Draw(t, "durations")
		cut := rapid.IntRange(0, len(durations)).Draw(t, "cut")
		q := rapid.Float64Range(0.001, 1).Draw(t, "q")
		all, other := Bins{}, Bins{}
		for i, d := range durations {
			if i < cut {
				all.Add(time.Duration(d), 1)
			} else {
				other.Add(time.Duration(d), 1)
			}
		}
		all.Merge(other)
		slices.Sort(durations)
		exact := float64(durations[max(0, int(math.Ceil(q*float64(len(durations))))-1)])
		if got := float64(all.Quantile(q)); all.Count() != uint64(len(durations)) || got < exact || got > exact*1.01 {
			t.Fatalf("the %v quantile of %d durations is %v, want %v", q, all.Count(), got, exact)
		}
	})
	if got := (Bins{}).Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}
