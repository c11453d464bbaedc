package topology

import (
	"testing"
	"time"
)

// Whenever a namespace is asked for, it is made within the window, and none is kept waiting for more than a period.
func TestRhythm(t *testing.T) {
	for asked := time.Duration(0); asked < 3*period; asked += time.Millisecond {
		now := asked
		r := &Rhythm{Now: func() time.Duration { return now }, Sleep: func(d time.Duration) { now += d }}
		r.Await()
		if phase := now % period; phase < windowBegin || phase >= windowEnd {
			t.Fatalf("asked for at %s, made at %s: phase %s", asked, now, phase)
		}
		if now-asked > period {
			t.Fatalf("asked for at %s, made %s later", asked, now-asked)
		}
	}
	for asked := time.Duration(0); asked < 3*period; asked += time.Millisecond {
		now := asked
		r := &Rhythm{Now: func() time.Duration { return now }, Sleep: func(d time.Duration) { now += d }}
		r.Next()
		if now%period != windowBegin || now <= asked || now-asked > period {
			t.Fatalf("asked for the next window at %s, got %s", asked, now)
		}
	}
	var none *Rhythm
	none.Await() // and nobody waits without one
}
