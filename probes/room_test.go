package probes

import (
	"runtime"
	"testing"
	"time"

	"github.com/hitless/hitless/reports"
)

// engineBytes is what an engine may hold more after an hour at 200 attempts a second than after ten minutes: by then every
// five-tuple whose age it must know has its place.
const engineBytes = 4 << 20

// An engine remembers nothing of attempts that are over but the ages of their five-tuples.
func TestAnHourOfAttemptsLeavesNothingBehind(t *testing.T) {
	const rate = 200
	var early, late int64
	n := 0
	trial := &trial{host: &fakeHost{}}
	trial.Engine = newEngine(Config{Seed: 1, Flush: func() {}, Record: func(a reports.Attempt) {
		n++
		switch a.Seq {
		case 10 * 60 * rate:
			early = heldBytes()
		case 60*60*rate - 1:
			late = heldBytes()
		}
	}}, trial.host)
	trial.protocol = &fakeProtocol{engine: trial.Engine, takes: after(3 * time.Millisecond), becomes: alwaysOK}
	trial.protocols = map[string]protocol{ProtocolTCPNew: trial.protocol}
	trial.run(t, testLane(rate), 0, time.Hour)
	if n != 60*60*rate {
		t.Fatalf("%d attempts in an hour at %d a second", n, rate)
	}
	if late-early > engineBytes {
		t.Errorf("the engine holds %d bytes more after an hour than after ten minutes; %d are allowed", late-early, int64(engineBytes))
	}
	t.Logf("after ten minutes %d bytes, after an hour %d more", early, late-early)
}

// heldBytes is the live heap.
func heldBytes() int64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
