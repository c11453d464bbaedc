package proxier

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// The percentages of garbage collection during the start. A start allocates most of the heap that ever exists. With the usual 100,
// collections took a quarter of the CPU of a start with 10,000 Services.
const (
	firstGCPercent = 8000 // until the first collection, which it puts off until the heap has 320 MB: Go's minimum of 4 MB times this
	startGCPercent = 400  // from then on, so that the heap of a larger cluster is limited too
)

// relaxGC collects garbage less often until end is called, unless collection is disabled.
func relaxGC() (end func()) {
	before := debug.SetGCPercent(firstGCPercent)
	if before < 0 {
		debug.SetGCPercent(before)
		return func() {}
	}
	var mu sync.Mutex
	ended := false
	runtime.AddCleanup(new(firstCollection), func(percent int) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			debug.SetGCPercent(percent)
		}
	}, startGCPercent)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		debug.SetGCPercent(before)
	}
}

// firstCollection is garbage, so that its cleanup runs after the first collection. It has a pointer, because small objects without one can
// share their memory with others.
type firstCollection struct{ _ *firstCollection }
