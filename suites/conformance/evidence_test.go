package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/run"
)

// Specs are judged in order: a run that begins late keeps all later results from the reader.
func TestRunsBeginInTheOrderOfTheirStarts(t *testing.T) {
	var begun, want []string
	c := newCollector(t.Context(), Config{Out: t.TempDir(), Execute: func(_ context.Context, o run.Options) (*run.Result, error) {
		begun = append(begun, filepath.Base(o.Out))
		return nil, run.UsageError{Reason: errors.New("made up")}
	}})
	c.most = 1
	if err := os.MkdirAll(filepath.Join(c.config.Out, RunsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	var runs []*Run
	for i := range 20 {
		r := &Run{Name: fmt.Sprint("run-", i), Scenario: "quiet"}
		runs, want = append(runs, r), append(want, r.Name)
		c.start(r)
	}
	for _, r := range runs {
		if _, err := c.of(t.Context(), r); err == nil {
			t.Errorf("%s has evidence", r.Name)
		}
	}
	if !slices.Equal(begun, want) {
		t.Errorf("the runs began as %q", begun)
	}
}
