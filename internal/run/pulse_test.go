package run

import (
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/prober"
)

func TestTheConsoleIsSortedOut(t *testing.T) {
	var progress []string
	var pulses []Pulse
	o := Options{Progress: func(line string) { progress = append(progress, line) }, Pulse: Named("seed 1", func(p Pulse) { pulses = append(pulses, p) })}
	lines := []string{"[    0.1] a line of the kernel", "hitless: +2.5s scenario begins", "hitless: pulse 3000 17 2 1", "hitless: pulse bro",
		"hitless: +3.5s checkpoint 1h of 2h", "hitless: pulse 4000 18 2 1", "hitless: +4.0s rollout 1"}
	take := o.teller()
	for _, line := range lines {
		take.console(line)
	}
	first := Pulse{Run: "seed 1", Stage: "scenario begins", Pulse: prober.Pulse{At: 3 * time.Second, Attempts: 17, Dropped: 2, Delayed: 1}}
	second := first
	second.At, second.Attempts = 4*time.Second, 18
	if want := []Pulse{first, second}; !slices.Equal(pulses, want) {
		t.Errorf("%+v, want %+v", pulses, want)
	}
	if want := []string{"+2.5s scenario begins", "+3.5s checkpoint 1h of 2h", "+4.0s rollout 1"}; !slices.Equal(progress, want) {
		t.Errorf("%q, want %q", progress, want)
	}
	if got := lastLines(lines, 3); !slices.Equal(got, []string{lines[1], lines[4], lines[6]}) {
		t.Errorf("the last lines: %q", got)
	}
	o.Pulse = Named("seed 1", nil)
	o.teller().console(lines[2]) // nobody wants to know
}

// Whoever shows how a run goes is told of its end, also of one that never began.
func TestTheEndOfARunIsTold(t *testing.T) {
	var pulses []Pulse
	_, err := Run(t.Context(), Options{Scenario: "none", Pulse: func(p Pulse) { pulses = append(pulses, p) }})
	if !IsUsage(err) || !slices.Equal(pulses, []Pulse{{Over: true}}) {
		t.Errorf("%v, and told was %+v", err, pulses)
	}
}
