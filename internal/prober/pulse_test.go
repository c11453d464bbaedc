package prober_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/reports"
)

// A pulse is a matter of the run's own time: at whatever pace the attempts' outcomes come in, there is one for each span.
func TestPulsesCountWhatTheLanesCameTo(t *testing.T) {
	var said []prober.Pulse
	take := prober.Pulses(time.Second, func(p prober.Pulse) { said = append(said, p) })
	for i := range 250 {
		a := reports.Attempt{Start: time.Duration(i)*10*time.Millisecond + 3*time.Second, Class: reports.OK}
		switch i {
		case 50:
			a.Class = reports.Refused
		case 51:
			a.Class = reports.Delayed
		case 52:
			a.Class = reports.Probe
		}
		take(a)
	}
	want := []prober.Pulse{{At: 3 * time.Second, Attempts: 1}, {At: 4 * time.Second, Attempts: 101, Dropped: 1, Delayed: 1},
		{At: 5 * time.Second, Attempts: 201, Dropped: 1, Delayed: 1}}
	if !slices.Equal(said, want) {
		t.Errorf("%+v, want %+v", said, want)
	}
}

// An outcome that is told late, such as a time-out, is no step back to a span that is over.
func TestALateOutcomeGivesNoPulse(t *testing.T) {
	n := 0
	take := prober.Pulses(time.Second, func(prober.Pulse) { n++ })
	for _, start := range []time.Duration{5 * time.Second, 2 * time.Second, 5900 * time.Millisecond} {
		take(reports.Attempt{Start: start, Class: reports.OK})
	}
	if n != 1 {
		t.Errorf("%d pulses of one span", n)
	}
}
