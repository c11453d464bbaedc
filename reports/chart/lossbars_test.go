package chart

import (
	"testing"
	"time"
)

// Delayed connections stand on dropped ones, a small loss stays visible, no bar leaves its row, and a bucket without loss has none.
func TestLossBarsStackWithinTheirRow(t *testing.T) {
	n := NewTally(3)
	n.Dropped, n.Delayed = []int{0, 15, 1}, []int{0, 10, 0}
	x := Axis{To: 3 * time.Second, Step: time.Second, Buckets: 3}
	bars := n.LossBars(x, Bars{Base: 20, Height: func(_, k int) float64 { return float64(k) }})
	if len(bars) != 3 {
		t.Fatalf("%d bars, want 3: %+v", len(bars), bars)
	}
	dropped, delayed, small := bars[0], bars[1], bars[2]
	if dropped.Class != "dropped" || dropped.Y != 5 || dropped.Height != 15 || delayed.Class != "delayed" || delayed.Y != 0 || delayed.Height != 5 || delayed.X != dropped.X {
		t.Errorf("dropped %+v and delayed %+v, want one on the other from 20 up to 0", dropped, delayed)
	}
	if small.Height != 2 || small.X <= dropped.X {
		t.Errorf("one lost connection is %+v, want a height of 2 in the next bucket", small)
	}
}
