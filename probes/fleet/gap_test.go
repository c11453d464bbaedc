package fleet

import (
	"strconv"
	"testing"
	"time"
)

// A gap begins before the first attempt that is missing, also when the clocks were last compared long after it.
func TestAGapBeginsBeforeWhatIsMissing(t *testing.T) {
	truly := func(own time.Duration) time.Duration { return own + own/2000 } // the worker's clock is slow by 500 ppm
	h := &history{lane: 100, began: true, begin: 0, low: 5}
	for own := time.Second; own <= 100*time.Second; own += 33 * time.Second {
		h.clock.compare(truly(own), truly(own), own)
	}
	e, told := h.gap(100*time.Millisecond, truly(100*time.Second))
	from, err := strconv.ParseInt(e.Attrs["fromNs"], 10, 64)
	if missing := truly(500 * time.Millisecond); !told || err != nil || time.Duration(from) > missing || missing-time.Duration(from) > 200*time.Millisecond {
		t.Errorf("the gap is told from %v on (%v), the first missing attempt was at %v", time.Duration(from), err, missing)
	}
}
