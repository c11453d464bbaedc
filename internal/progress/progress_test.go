package progress_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
)

var events = map[string]progress.Event{
	"booting":                  {Kind: progress.Message, Text: "booting"},
	"+61.5s 3.0 wake-ups":      {Kind: progress.Message, At: 61500 * time.Millisecond, Text: "3.0 wake-ups"},
	"+0.0s laying the network": {Kind: progress.Stage, Text: "laying the network"},
	"+2.5s a <b> & \"c\"\td":   {Kind: progress.Stage, At: 2500 * time.Millisecond, Text: "a <b> & \"c\"\td"},
	"+3600.0s checkpoint 1h":   {Kind: progress.Checkpoint, At: time.Hour, Text: "checkpoint 1h"},
	"+3.0s ":                   {Kind: progress.Measurement, At: 3 * time.Second, Counts: progress.Counts{Attempts: 17, Dropped: 2, Delayed: 1}},
}

func TestLineHasEvent(t *testing.T) {
	for text, e := range events {
		var line bytes.Buffer
		if err := progress.Write(&line, e); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(line.String(), "\n"); n != 1 || !strings.HasSuffix(line.String(), "\n") {
			t.Errorf("%d line ends in %q", n, line.String())
		}
		if got, ok := progress.Parse(strings.TrimSuffix(line.String(), "\n")); !ok || got != e {
			t.Errorf("%+v is read as %+v", e, got)
		}
		if e.String() != text {
			t.Errorf("%+v is rendered as %q, want %q", e, e, text)
		}
	}
}

func TestOtherLinesHoldNoEvent(t *testing.T) {
	for _, line := range []string{"", "hitless: waiting for a free CPU", "[    0.1] a line of the kernel", `{"kind":"stage"}`,
		`hitless-progress {"kind":"stage","at":1`, "hitless-progress {}", `[ 0.1] hitless-progress {"kind":"stage"}`} {
		if e, ok := progress.Parse(line); ok {
			t.Errorf("%q is read as %+v", line, e)
		}
	}
}

func TestNamedAddsTheRun(t *testing.T) {
	var got progress.Event
	progress.Named("seed 1", func(e progress.Event) { got = e })(progress.Event{Kind: progress.Stage, At: time.Second, Text: "rollout 1"})
	if got.Run != "seed 1" || got.String() != "seed 1: +1.0s rollout 1" {
		t.Errorf("%+v: %s", got, got)
	}
}
