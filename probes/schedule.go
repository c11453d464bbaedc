package probes

import (
	"math"
	"time"
)

// never is later than every instant of a run.
const never = time.Duration(math.MaxInt64)

// schedule says when the attempts of a lane are intended. It holds no state, so nothing that happens can shift it.
type schedule struct {
	start time.Duration // offset of attempt 0 in the run
	rate  float64       // attempts per second
}

// at returns when attempt k is intended: start + k/rate, to the nanosecond. It is computed from k each time rather than
// by adding gaps, so that the rounding of a gap (333,333,333.3 ns) never adds up. The product k x 1e9 and the quotient
// are rounded to 53 bits, which is below a nanosecond for the first hundred days of a lane.
func (s schedule) at(k uint64) time.Duration {
	return s.start + time.Duration(math.Round(float64(k)*1e9/s.rate))
}

// cursor walks a schedule once, in order, up to an end that may be moved while it walks.
type cursor struct {
	schedule
	next uint64        // number of the next attempt
	end  time.Duration // attempts intended at or after it do not happen
}

// due returns when the next attempt is intended, or never when the schedule is over.
func (c *cursor) due() time.Duration {
	if at := c.at(c.next); at < c.end {
		return at
	}
	return never
}

// over reports whether no attempt is left.
func (c *cursor) over() bool { return c.due() == never }
