package proxier

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// gcSettings are the percentage of garbage collection and the limit of memory.
type gcSettings struct{ percent, limit uint64 }

func readGC() gcSettings {
	all := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(all)
	return gcSettings{all[0].Value.Uint64(), all[1].Value.Uint64()}
}

// The first collection of a start limits the heap, and the end of the start restores the settings.
func TestGarbageCollectionOfAStart(t *testing.T) {
	before := readGC()
	end := relaxGC()
	defer end()
	if got := readGC(); got.limit != startMemory {
		t.Errorf("the start begins with a limit of %d bytes, want %d", got.limit, startMemory)
	}
	for deadline := time.Now().Add(10 * time.Second); readGC() != (gcSettings{startGCPercent, before.limit}); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("after collections the settings are %+v, want %d %%", readGC(), startGCPercent)
		}
	}
	if end(); readGC() != before {
		t.Errorf("after the start the settings are %+v, want %+v", readGC(), before)
	}
}

// A first collection after the end of the start changes nothing.
func TestALateFirstCollection(t *testing.T) {
	before := readGC()
	end := relaxGC()
	end()
	done := make(chan bool)
	runtime.AddCleanup(new(firstCollection), func(done chan bool) { close(done) }, done)
	for deadline := time.After(10 * time.Second); ; runtime.GC() {
		select {
		case <-done: // a cleanup of the same collection or of a later one has run
			if got := readGC(); got != before {
				t.Errorf("the settings are %+v, want %+v", got, before)
			}
			return
		case <-deadline:
			t.Fatal("no cleanup ran")
		default:
		}
	}
}

// A program without garbage collection stays so.
func TestGarbageCollectionStaysOff(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := readGC()
	end := relaxGC()
	if got := readGC(); got != before {
		t.Errorf("the start changed the settings to %+v", got)
	}
	if end(); readGC() != before {
		t.Errorf("the end of the start changed the settings to %+v", readGC())
	}
}
