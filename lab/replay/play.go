package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/reports"
)

// Clock is the time that a timeline is played on: offsets from the start of the run.
type Clock interface {
	Now() time.Duration
	// Until waits until Now is at least at. It returns early, with the context's error, when ctx ends.
	Until(ctx context.Context, at time.Duration) error
}

// ClockFrom is the clock of this machine (virtual in a guest with a virtual clock), counted from start.
func ClockFrom(start time.Time) Clock { return machineClock{start} }

type machineClock struct{ start time.Time }

func (c machineClock) Now() time.Duration { return time.Since(c.start) }

func (c machineClock) Until(ctx context.Context, at time.Duration) error {
	left := at - c.Now()
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Play does the steps on s, each when its time has come, and records one event of kind step for each. It stops at the
// first step that fails, which is recorded too, and returns its error with the step's line; a step that did not happen
// makes a run invalid. It returns the context's error when ctx ends first.
func (t *Timeline) Play(ctx context.Context, clock Clock, s *Server, record func(reports.Event)) error {
	for _, step := range t.Steps {
		if err := clock.Until(ctx, step.At); err != nil {
			return fmt.Errorf("playing the timeline, before line %d: %w", step.Line, err)
		}
		verb, ref, err := step.do(s)
		event := reports.Event{
			At: clock.Now(), Kind: reports.EventStep, Object: ref.String(), Text: verb + " " + ref.String(),
			Attrs: map[string]string{"state": "end"},
		}
		if err != nil {
			event.Attrs = map[string]string{"state": "failed", "error": err.Error()}
		}
		record(event)
		if err != nil {
			return fmt.Errorf("playing the timeline, line %d: %w", step.Line, err)
		}
	}
	return nil
}

func (step Step) do(s *Server) (verb string, ref Ref, err error) {
	if step.Delete != nil {
		return "delete", step.Delete.Ref, s.Delete(step.Delete.Ref, step.Delete.Options)
	}
	_, err = s.Apply(step.Apply)
	return "apply", RefOf(step.Apply), err
}
