package prober

import (
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/record"
)

// Measurements returns a function for Config.Measured that counts attempts and reports the counts once in each interval of the
// run's own time. It reports when an attempt ends, so it needs no timer.
func Measurements(every time.Duration, report func(progress.Event)) func(record.Attempt) {
	e := progress.Event{Kind: progress.Measurement}
	var next time.Duration
	return func(a record.Attempt) {
		e.Attempts++
		switch {
		case a.Class == record.Delayed:
			e.Delayed++
		case a.Class.Dropped():
			e.Dropped++
		}
		if at := a.Start + a.Total; at >= next {
			next = at - at%every + every
			e.At = at
			report(e)
		}
	}
}
