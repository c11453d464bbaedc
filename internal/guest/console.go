//go:build linux

package guest

import (
	"io"
	"os"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// console reports how far the run is, as lines of package progress. The lines are a function of the plan, whether the host reads
// them or not.
type console struct {
	out io.Writer
	now func() time.Duration
}

func newConsole(now func() time.Duration) console { return console{os.Stdout, now} }

func (c console) report(e progress.Event) { _ = progress.Write(c.out, e) } // progress is not part of the record

func (c console) stage(text string) {
	c.report(progress.Event{Kind: progress.Stage, At: c.now(), Text: text})
}

func (c console) message(text string) {
	c.report(progress.Event{Kind: progress.Message, At: c.now(), Text: text})
}

// measurements returns what reports the counts of attempts: each second, and in a soak each ten minutes, since days of lines would
// fill the console.
func (c console) measurements(plan Plan) func(record.Attempt) {
	every := time.Second
	if plan.Scenario == "soak" {
		every = 10 * time.Minute
	}
	return prober.Measurements(every, c.report)
}

// announcer reports phases, steps and checkpoints on the console as they are recorded. All attempts before a checkpoint are in
// the region before the host reads of it.
type announcer struct {
	*recorder
	console console
}

// Event records an event.
func (a announcer) Event(e record.Event) {
	switch e.Kind() {
	case record.KindPhase:
		a.console.report(progress.Event{Kind: progress.Stage, At: a.console.now(), Text: e.Text, Phase: e.Object})
	case record.KindStep:
		a.console.stage(e.Text)
	}
	a.recorder.Event(e)
	if e.Object == scenarios.Checkpoint {
		a.recorder.flushAll()
		a.console.report(progress.Event{Kind: progress.Checkpoint, At: a.console.now(), Text: e.Text})
	}
}
