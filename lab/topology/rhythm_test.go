package topology

import (
	"testing"
	"time"
)

// Whenever a namespace is asked for, it is made within the window, and none is kept waiting for more than a period.
func TestRhythm(t *testing.T) {
	for asked := time.Duration(0); asked < 3*period; asked += time.Millisecond {
		now := asked
		r := &Rhythm{Wheel: func() time.Duration { return now }, Sleep: func(d time.Duration) { now += d }}
		r.Await()
		if phase := now % period; phase < windowBegin || phase >= windowEnd {
			t.Fatalf("asked for at %s, made at %s: phase %s", asked, now, phase)
		}
		if now-asked > period {
			t.Fatalf("asked for at %s, made %s later", asked, now-asked)
		}
	}
	var none *Rhythm
	none.Await() // and nobody waits without one
}

// All timers of a second that are set within the window run out at the same tick, as the kernel's wheel rounds them; one that is set
// before the window may run out earlier.
func TestWindowIsWithinOneStepOfTheWheel(t *testing.T) {
	const tick = 4 * time.Millisecond
	end := func(at time.Duration) int64 { j := int64(at / tick); return (j + 250 + 8) / 8 * 8 }
	for at := windowBegin; at < windowEnd; at += time.Millisecond {
		if end(at) != end(windowBegin) {
			t.Fatalf("set at phase %s: runs out at tick %d, one of phase %s at %d", at, end(at), windowBegin, end(windowBegin))
		}
	}
	if end(windowBegin-tick) == end(windowBegin) {
		t.Fatalf("the window does not begin with a step of the wheel")
	}
}
