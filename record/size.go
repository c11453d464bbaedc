package record

import "math"

// AttemptBytes is more than an attempt takes on average in attempts.bin: lanes of IPv4, runs of days, thousands of pods.
// Where every attempt stands there, the room of a record is a product that is known before the run.
const AttemptBytes = 64

// ThinnedSecondBytes is more than the bucket takes of a second in which nothing happens on a thinned lane: histograms have
// so many bins at any rate.
const ThinnedSecondBytes = 1750

// LaneBytes bounds the room of a lane's record: attempts a second, for so many seconds.
func LaneBytes(rate, seconds float64) float64 { return rate * seconds * AttemptBytes }

// ThinnedLaneBytes bounds the room of a lane's record when it is thinned and at most so many of its seconds are near an
// event or a failure. Lanes that Thinner keeps whole need LaneBytes.
func ThinnedLaneBytes(rate, seconds, eventful float64) float64 {
	if rate < thinRate {
		return LaneBytes(rate, seconds)
	}
	eventful = min(eventful, seconds)
	return LaneBytes(rate, eventful) + (seconds-eventful)*math.Min(ThinnedSecondBytes, rate*AttemptBytes)
}
