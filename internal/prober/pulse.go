package prober

import (
	"time"

	"github.com/hitless/hitless/reports"
)

// Pulse is how a measurement goes: what the measured lanes came to so far.
type Pulse struct {
	At                         time.Duration // since the start of the run, by its own clock
	Attempts, Dropped, Delayed int
}

// Pulses returns what counts attempts, to be Config.Measured, and gives a Pulse to say each time that a span of the run's own
// time is over. It does so when an attempt has come to its end, and so wakes nothing.
func Pulses(every time.Duration, say func(Pulse)) func(reports.Attempt) {
	var p Pulse
	var next time.Duration
	return func(a reports.Attempt) {
		p.Attempts++
		switch {
		case a.Class == reports.Delayed:
			p.Delayed++
		case a.Class.Dropped():
			p.Dropped++
		}
		if at := a.Start + a.Total; at >= next {
			next = at - at%every + every
			p.At = at
			say(p)
		}
	}
}
