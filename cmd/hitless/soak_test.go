package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
)

// A failure is not hidden by a run that is invalid or was skipped, in whatever order they end.
func TestTheWorstRunGivesTheExitCode(t *testing.T) {
	order := []int{exitPass, exitUsage, exitInvalid, analysis.Fail.ExitCode()}
	for i, b := range order {
		for _, a := range order[:i+1] {
			if worse(a, b) != b || worse(b, a) != b {
				t.Errorf("of the exit codes %d and %d the worse is %d and %d, want %d", a, b, worse(a, b), worse(b, a), b)
			}
		}
	}
}

// The result of a seed is printed when the seed ends, also before an interrupt or an error of another seed.
func TestSeedsAreReportedAsTheyEnd(t *testing.T) {
	var out strings.Builder
	ctx, interrupt := context.WithCancel(t.Context())
	told := soakSummary{out: &out, code: exitPass}
	told.add(ctx, 3, nil, errors.New("the guest ended early"))
	if got := out.String(); got != "seed 3  INVALID  the guest ended early\n" {
		t.Errorf("the result of an ended seed is printed as %q", got)
	}
	_, wrong := run.Run(ctx, run.Options{Scenario: "rolout"})
	told.add(ctx, 4, nil, wrong)
	var code exitError
	if err := told.end(ctx); !errors.As(err, &code) || code.code != exitInvalid || !strings.Contains(out.String(), "not every seed has run: "+wrong.Error()) {
		t.Errorf("one seed ended, another could not begin: %v, %q", err, out.String())
	}
	if told.complete() {
		t.Error("a shard with a seed that has no report is complete")
	}
	before := out.String()
	interrupt()
	told.add(ctx, 5, nil, context.Canceled)
	if err := told.end(ctx); !errors.Is(err, context.Canceled) || out.String() != before {
		t.Errorf("interrupted: %v, %q", err, strings.TrimPrefix(out.String(), before))
	}
	none := soakSummary{out: &out, code: exitPass}
	none.add(t.Context(), 1, nil, wrong)
	if err := none.end(t.Context()); !run.IsUsage(err) {
		t.Errorf("no seed could begin: %v", err)
	}
}

func TestSeedsAreWholeNumbersOf64Bits(t *testing.T) {
	for text, want := range map[string][2]int64{"1": {1, 1}, "7..9": {7, 9}, "1..16": {1, 16}, "-2..-1": {-2, -1}, "9223372036854775806..9223372036854775807": {math.MaxInt64 - 1, math.MaxInt64}} {
		if first, last, err := parseSeeds(text); err != nil || first != want[0] || last != want[1] {
			t.Errorf("--seeds %s: %d to %d, %v", text, first, last, err)
		}
	}
	for _, text := range []string{"", "a", "9..7", "1..", "..3", "1..100000", "1-3", "0", "0..4", "-1..1", "4..3", "1..10001", "9223372036854775808", "-9223372036854775808..9223372036854775807"} {
		if _, _, err := parseSeeds(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("--seeds %s: %v, want an error", text, err)
		}
	}
}
