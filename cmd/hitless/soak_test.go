package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
)

// What is known of a seed is told when it is known: an interrupt, or another seed that cannot begin, takes nothing from it.
func TestSeedsAreToldAsTheyEnd(t *testing.T) {
	var out strings.Builder
	ctx, interrupt := context.WithCancel(t.Context())
	told := soakTeller{out: &out, code: exitPass}
	told.tell(ctx, 3, nil, errors.New("the guest ended early"))
	if got := out.String(); got != "seed 3  INVALID  the guest ended early\n" {
		t.Errorf("a seed that has ended is told as %q", got)
	}
	_, wrong := run.Run(ctx, run.Options{Scenario: "rolout"})
	told.tell(ctx, 4, nil, wrong)
	var code exitError
	if err := told.end(ctx); !errors.As(err, &code) || code.code != exitInvalid || !strings.Contains(out.String(), "not every seed has run: "+wrong.Error()) {
		t.Errorf("one seed ended, another could not begin: %v, %q", err, out.String())
	}
	before := out.String()
	interrupt()
	told.tell(ctx, 5, nil, context.Canceled)
	if err := told.end(ctx); !errors.Is(err, context.Canceled) || out.String() != before {
		t.Errorf("interrupted: %v, %q", err, strings.TrimPrefix(out.String(), before))
	}
	none := soakTeller{out: &out, code: exitPass}
	none.tell(t.Context(), 1, nil, wrong)
	if err := none.end(t.Context()); !run.IsUsage(err) {
		t.Errorf("no seed could begin: %v", err)
	}
}
