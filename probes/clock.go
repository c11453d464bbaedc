package probes

import (
	"math"
	"time"
)

// Tokens of the poller's own descriptors; flights and lane sockets have the others.
const (
	tokenTimer = -1 - iota
	tokenWake
)

// disarmed is a value of poller.armed that matches no time.
const disarmed = time.Duration(math.MinInt64)

// clock maps Go's monotonic time to offsets from the start of the run.
type clock struct {
	base   int64 // CLOCK_MONOTONIC nanoseconds of the run's start
	offset time.Duration
	anchor time.Time
}

// newClock reads CLOCK_MONOTONIC between two readings of Go's monotonic clock, several times, and keeps the narrowest
// pair. The mapping is right to a fraction of a microsecond.
func newClock(base int64) (*clock, error) {
	c := &clock{base: base}
	narrowest := never
	for range 5 {
		before := time.Now()
		now, err := Monotonic()
		if err != nil {
			return nil, err
		}
		if width := time.Since(before); width < narrowest {
			narrowest = width
			c.anchor, c.offset = before.Add(width/2), time.Duration(now-base)
		}
	}
	return c, nil
}

// Now returns the offset of the current time from the start of the run.
func (c *clock) Now() time.Duration { return c.offset + time.Since(c.anchor) }
