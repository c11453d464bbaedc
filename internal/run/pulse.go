package run

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/scenarios"
)

// Pulse is how a run goes, about once in a second of its own time, and when it is over.
type Pulse struct {
	prober.Pulse
	Run   string // names the run where several go on at once; empty for a single one
	Stage string // the phase or step that began last
	Over  bool   // the run has ended, however it did; nothing else is told
}

// Named adds the name of a run to its pulses; nil when nobody watches.
func Named(name string, pulse func(Pulse)) func(Pulse) {
	if pulse == nil {
		return nil
	}
	return func(p Pulse) {
		p.Run = name
		pulse(p)
	}
}

// teller passes on what one run says, and joins what it measures with the stage that it is in. It may be used from several
// goroutines.
type teller struct {
	say   func(string)
	pulse func(Pulse) // nil when nobody watches

	mu    sync.Mutex
	stage string
}

func (o Options) teller() *teller { return &teller{say: o.Progress, pulse: o.Pulse} }

// stageLine is how a run tells what begins, with its time before it.
var stageLine = regexp.MustCompile(`^\+[0-9.]+s (.*)$`)

// progress passes on a line of the run's progress.
func (t *teller) progress(line string) {
	if m := stageLine.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], scenarios.Checkpoint+" ") {
		t.mu.Lock()
		t.stage = m[1]
		t.mu.Unlock()
	}
	t.say(line)
}

// measured passes on how the measurement goes.
func (t *teller) measured(p prober.Pulse) {
	if t.pulse == nil {
		return
	}
	t.mu.Lock()
	stage := t.stage
	t.mu.Unlock()
	t.pulse(Pulse{Pulse: p, Stage: stage})
}

// console takes a line of a guest's console; the kernel's own lines stay in the console.
func (t *teller) console(line string) {
	if guest.IsPulse(line) {
		if p, whole := guest.ParsePulse(line); whole {
			t.measured(p)
		}
		return
	}
	if text, is := strings.CutPrefix(line, "hitless: "); is {
		t.progress(text)
	}
}

// lastLines are the last lines of a console without those about the measurement.
func lastLines(lines []string, n int) []string {
	kept := slices.DeleteFunc(slices.Clone(lines), guest.IsPulse)
	return kept[max(0, len(kept)-n):]
}
