package guest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/reports"
)

func TestTheConsoleTellsHowTheMeasurementGoes(t *testing.T) {
	for scenario, want := range map[string]int{"rollout": 60, "soak": 1} {
		var console bytes.Buffer
		take := pulses(Plan{Scenario: scenario}, &console)
		for i := range 600 {
			take(reports.Attempt{Start: time.Duration(i) * 100 * time.Millisecond, Class: reports.Refused})
		}
		lines := strings.Split(strings.TrimSpace(console.String()), "\n")
		if len(lines) != want {
			t.Errorf("%s: %d lines in a minute, want %d", scenario, len(lines), want)
		}
		last, is := ParsePulse(lines[len(lines)-1])
		if at := time.Duration(len(lines)-1) * time.Second; !is || last != (prober.Pulse{At: at, Attempts: 10*(len(lines)-1) + 1, Dropped: 10*(len(lines)-1) + 1}) {
			t.Errorf("%s: the last line %q says %+v", scenario, lines[len(lines)-1], last)
		}
	}
}

func TestOtherLinesAreNoPulse(t *testing.T) {
	for _, line := range []string{"hitless: +2.5s scenario begins", "[    0.1] hitless: pulse 1 2 3 4", pulsePrefix + "3000 1", ""} {
		if p, is := ParsePulse(line); is {
			t.Errorf("%q is read as %+v", line, p)
		}
	}
}
