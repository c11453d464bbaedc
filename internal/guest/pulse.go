package guest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/reports"
)

// pulsePrefix begins the console's lines that tell how the measurement goes.
const pulsePrefix = "hitless: pulse "

// pulses tells on the console how the measurement goes: each second, and of a soak, whose days would fill the console, each
// ten minutes. What is told is a function of the plan, whether anybody reads it or not.
func pulses(plan Plan, console io.Writer) func(reports.Attempt) {
	every := time.Second
	if plan.Scenario == "soak" {
		every = 10 * time.Minute
	}
	return prober.Pulses(every, func(p prober.Pulse) {
		fmt.Fprintf(console, "%s%d %d %d %d\n", pulsePrefix, p.At.Milliseconds(), p.Attempts, p.Dropped, p.Delayed)
	})
}

// IsPulse reports whether a line of the console tells how the measurement goes.
func IsPulse(line string) bool { return strings.HasPrefix(line, pulsePrefix) }

// ParsePulse reads a line of the console that tells how the measurement goes. A line that was cut off is none.
func ParsePulse(line string) (p prober.Pulse, is bool) {
	rest, is := strings.CutPrefix(line, pulsePrefix)
	if !is {
		return p, false
	}
	var ms int64
	if _, err := fmt.Sscanf(rest, "%d %d %d %d", &ms, &p.Attempts, &p.Dropped, &p.Delayed); err != nil {
		return p, false
	}
	p.At = time.Duration(ms) * time.Millisecond
	return p, true
}
