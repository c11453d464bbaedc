package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// performVerb performs a verb. Scenarios change the cluster only through it and perform, so that the run's timeline is
// complete. args are keys and values in turn.
func (w *World) performVerb(ctx context.Context, verb, object string, args ...string) error {
	s := timeline.Step{Verb: verb, Object: object}
	for i := 0; i+1 < len(args); i += 2 {
		s.Args = append(s.Args, timeline.Arg{Key: args[i], Value: args[i+1]})
	}
	return w.perform(ctx, s)
}

// await waits for a condition, at most for the given time. In the timeline it is await where the scenario continues
// without the condition, and expect elsewhere.
func (w *World) await(ctx context.Context, what, object string, most time.Duration) error {
	return w.performVerb(ctx, timeline.Waiting(what, !w.run.tolerant), object, "within", most.String())
}

// perform writes a step into the run's timeline and performs it.
func (w *World) perform(ctx context.Context, s timeline.Step) error {
	w.write(s)
	return s.Perform(ctx, executor{w})
}

// journal returns the writer of the run's timeline, or an error where the run writes none.
func (w *World) journal() (JournalWriter, error) {
	if w.run.unwritten {
		return nil, errors.New("a timeline has no verbs for all steps of this scenario")
	}
	return part[JournalWriter](w.Site, Journal)
}

// write adds a step to the run's timeline, to the millisecond.
func (w *World) write(s timeline.Step) {
	if j, err := w.journal(); err == nil {
		s.At = (w.Clock.Now() - w.run.began).Truncate(time.Millisecond)
		j.Journal(s.String() + "\n")
	}
}

// executor performs the steps of timelines on a world.
type executor struct{ *World }

var _ timeline.Executor = executor{}

func (w *World) log(object, text string) {
	w.Recorder.Event(record.Event{At: w.Clock.Now(), Object: object, Text: text, Body: record.Log{}})
}
