package clock

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	begin := time.Now()
	if err := Sleep(t.Context(), 5*time.Millisecond); err != nil || time.Since(begin) < 5*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, over) {
		t.Errorf("%v, want the context's cause", err)
	}
}
