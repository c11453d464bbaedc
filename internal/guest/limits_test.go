package guest

import "testing"

// A slow lane gets a small table, a fast one the kernel's own, and none has more connections than buckets below that.
func TestBucketsFitTheRate(t *testing.T) {
	for _, c := range []struct {
		perSecond float64
		want      int
	}{
		{0, fewestBuckets}, {0.1, fewestBuckets}, {0.8, fewestBuckets}, {1, 2048}, {10, 16384}, {50, stockBuckets}, {5000, stockBuckets},
	} {
		got := bucketsFor(c.perSecond)
		if got != c.want {
			t.Errorf("%v a second: %d buckets, want %d", c.perSecond, got, c.want)
		}
		if entries := c.perSecond * 1200; got < stockBuckets && float64(got) < entries {
			t.Errorf("%v a second: %d buckets for %v entries", c.perSecond, got, entries)
		}
	}
}
