package fleet

import "time"

// drift is how fast two clocks may part at most, as a share of the time: a kernel that follows NTP slews CLOCK_MONOTONIC by
// at most 500 ppm (adjtimex(2)), quartz is off by less than 100.
const drift = 600e-6

// offset is what is known of the difference between the run's clock and a worker's: run = worker + offset.
//
// A worker reads its clock after it was asked and before its answer is there, so each exchange gives an interval that holds the
// difference, as wide as the exchange took. Intervals are joined as the clocks may have parted meanwhile.
type offset struct {
	low, high time.Duration // holds the difference at the instant at
	at        time.Duration // of the run's clock
	jump      time.Duration // by how much the clocks parted beyond all reason since the exchange before, or 0
	known     bool
}

// compare takes an exchange: the worker's clock stood at now between the instants asked and answered of the run's.
func (o *offset) compare(asked, answered, now time.Duration) {
	low, high := asked-now, answered-now
	if !o.known {
		*o = offset{low: low, high: high, at: asked, known: true}
		return
	}
	since := parted(answered - o.at)
	joined := offset{low: max(low, o.low-since), high: min(high, o.high+since), at: asked, known: true}
	if joined.low > joined.high { // one of the machines stood still: its clock, too
		joined = offset{low: low, high: high, at: asked, known: true,
			jump: max(high, o.high+since) - min(low, o.low-since)}
	}
	*o = joined
}

// parted is by how much two clocks may part in a time.
func parted(d time.Duration) time.Duration { return time.Duration(float64(d)*drift) + 1 }

// best is the difference that is wrong by the least at most.
func (o *offset) best() time.Duration { return o.low + (o.high-o.low)/2 }

// bound is how far best may be off for an instant that lies so long before the last exchange.
func (o *offset) bound(age time.Duration) time.Duration {
	return (o.high-o.low)/2 + 1 + parted(max(0, age)) + o.jump
}
