//go:build linux

package topology

import (
	"testing"
	"time"
)

// Await and Next return within the window and wait for at most one period.
func TestPacerReturnsWithinTheWindow(t *testing.T) {
	for called := time.Duration(0); called < 3*period; called += time.Millisecond {
		now := called
		r := &Pacer{Now: func() time.Duration { return now }, Sleep: func(d time.Duration) { now += d }}
		r.Await()
		if phase := now % period; phase < windowBegin || phase >= windowEnd {
			t.Fatalf("called at %s, returned at %s: phase %s", called, now, phase)
		}
		if now-called > period {
			t.Fatalf("called at %s, returned %s later", called, now-called)
		}
	}
	for called := time.Duration(0); called < 3*period; called += time.Millisecond {
		now := called
		r := &Pacer{Now: func() time.Duration { return now }, Sleep: func(d time.Duration) { now += d }}
		r.Next()
		if now%period != windowBegin || now <= called || now-called > period {
			t.Fatalf("called Next at %s, returned at %s", called, now)
		}
	}
	var none *Pacer
	none.Await() // a nil Pacer never waits
}
