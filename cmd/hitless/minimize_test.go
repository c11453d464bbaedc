package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/scenarios/timeline"
)

// runnerFunc answers for runs.
type runnerFunc func(t *timeline.Timeline) (bool, error)

func (f runnerFunc) Fails(_ context.Context, t *timeline.Timeline) (bool, error) { return f(t) }

func minimized(t *testing.T, ctx context.Context, r runnerFunc) (output, file string, err error) {
	t.Helper()
	line, err := timeline.Parse("f", []byte("hitless timeline 1\n+0s proxy stop node-1\n+1s proxy start node-1\n+2s workload rollout web\n+3s proxy kill node-2\n+1m end\n"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "min")
	cmd := minimizeCommand()
	var text bytes.Buffer
	cmd.SetOut(&text)
	cmd.SetContext(ctx)
	err = minimize(cmd, line, r, out)
	data, _ := os.ReadFile(out) // none is seen as empty
	return text.String(), string(data), err
}

func has(t *timeline.Timeline, does string) bool {
	return slices.ContainsFunc(t.Steps, func(s timeline.Step) bool { return s.Action() == does })
}

func TestMinimizeWritesTheShortestThatFails(t *testing.T) {
	output, file, err := minimized(t, t.Context(), func(line *timeline.Timeline) (bool, error) { return has(line, "proxy kill node-2"), nil })
	if err != nil || !strings.HasSuffix(file, "seed 1\n+3s proxy kill node-2\n+4s end\n") {
		t.Errorf("%v: left is\n%s", err, file)
	}
	for _, want := range []string{"replaying the run's 4 steps in 1m0s\n", "trial 1, ", "left of 4 steps in 1m0s: 1 step in 4s, in "} {
		if !strings.Contains(output, want) {
			t.Errorf("the output has no %q:\n%s", want, output)
		}
	}
}

// A timeline that does not fail when it is replayed is an error, and leaves no file.
func TestMinimizeNeedsAFailure(t *testing.T) {
	_, file, err := minimized(t, t.Context(), func(*timeline.Timeline) (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "does not fail when it is replayed") || file != "" {
		t.Errorf("%v; left is %q", err, file)
	}
}

// After Ctrl-C the file has the best timeline so far.
func TestMinimizeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	output, file, err := minimized(t, ctx, func(line *timeline.Timeline) (bool, error) {
		if len(line.Steps) < 4 && has(line, "proxy kill node-2") {
			cancel()
		}
		return has(line, "proxy kill node-2"), ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || exitCode(ctx, err) != exitInterrupted {
		t.Errorf("got %v", err)
	}
	if line, err := timeline.Parse("f", []byte(file)); err != nil || !has(line, "proxy kill node-2") || !strings.Contains(output, "it may be shorter still") {
		t.Errorf("%v: left is\n%s\n%s", err, file, output)
	}
}
