package proxier

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// gcPercent reads the percentage of garbage collection.
func gcPercent() int {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	return percent
}

// The first collection of a start limits the heap, and the end of the start restores the setting.
func TestGarbageCollectionOfAStart(t *testing.T) {
	before := gcPercent()
	end := relaxGC()
	if got := gcPercent(); got != firstGCPercent {
		t.Errorf("the start begins with %d %%, want %d", got, firstGCPercent)
	}
	for deadline := time.Now().Add(10 * time.Second); gcPercent() != startGCPercent; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("after collections the percentage is %d, want %d", gcPercent(), startGCPercent)
		}
	}
	if end(); gcPercent() != before {
		t.Errorf("after the start the percentage is %d, want %d", gcPercent(), before)
	}
}

// A program without garbage collection stays so, and a late first collection changes nothing.
func TestGarbageCollectionStaysOff(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	end := relaxGC()
	if got := gcPercent(); got != -1 {
		t.Errorf("the start turned garbage collection on: %d", got)
	}
	if end(); gcPercent() != -1 {
		t.Errorf("the end of the start turned garbage collection on: %d", gcPercent())
	}
}
