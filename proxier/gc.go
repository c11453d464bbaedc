package proxier

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// Garbage collection during the start. A start allocates most of the heap that ever exists. With the usual 100 %, collections took a quarter
// of the CPU of a start with 10,000 Services.
const (
	startMemory    = 320 << 20 // bytes of memory until which there is no collection
	startGCPercent = 400       // from the first collection on, so that the heap of a larger cluster is limited too
)

// relaxGC collects garbage less often until end is called, unless collection is disabled.
func relaxGC() (end func()) {
	percent := debug.SetGCPercent(-1)
	if percent < 0 {
		return func() {}
	}
	limit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(limit, startMemory))
	g := &relaxedGC{limit: limit}
	runtime.AddCleanup(new(firstCollection), func(g *relaxedGC) { g.set(startGCPercent, false) }, g)
	return func() { g.set(percent, true) }
}

// firstCollection is garbage, so that its cleanup runs after the first collection. It has a pointer, because small objects without one can
// share their memory with others.
type firstCollection struct{ _ *firstCollection }

// relaxedGC is the garbage collection of a start.
type relaxedGC struct {
	limit int64 // of memory, before the start

	mu    sync.Mutex
	ended bool
}

// set ends the time without collection, unless the start has ended before.
func (g *relaxedGC) set(percent int, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(g.limit)
	}
	g.ended = g.ended || last
}
