package prober_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/record"
)

// Reports follow the run's own time: there is one for each interval, at whatever pace the attempts arrive.
func TestMeasurementsCountAttempts(t *testing.T) {
	var got []progress.Event
	count := prober.Measurements(time.Second, func(e progress.Event) { got = append(got, e) })
	for i := range 250 {
		a := record.Attempt{Start: time.Duration(i)*10*time.Millisecond + 3*time.Second, Class: record.OK}
		switch i {
		case 50:
			a.Class = record.Refused
		case 51:
			a.Class = record.Delayed
		case 52:
			a.Class = record.Probe
		}
		count(a)
	}
	want := []progress.Event{measurement(3, 1, 0, 0), measurement(4, 101, 1, 1), measurement(5, 201, 1, 1)}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func measurement(second, attempts, dropped, delayed int) progress.Event {
	return progress.Event{Kind: progress.Measurement, At: time.Duration(second) * time.Second, Counts: progress.Counts{Attempts: attempts, Dropped: dropped, Delayed: delayed}}
}

// An attempt that is reported late, such as a time-out, gives no second report for an earlier interval.
func TestLateOutcomeGivesNoReport(t *testing.T) {
	n := 0
	count := prober.Measurements(time.Second, func(progress.Event) { n++ })
	for _, start := range []time.Duration{5 * time.Second, 2 * time.Second, 5900 * time.Millisecond} {
		count(record.Attempt{Start: start, Class: record.OK})
	}
	if n != 1 {
		t.Errorf("%d reports of one interval", n)
	}
}
