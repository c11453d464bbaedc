//go:build linux

package guest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

func TestTheConsoleReportsMeasurements(t *testing.T) {
	for scenario, want := range map[string]int{"rollout": 60, "soak": 1} {
		var out bytes.Buffer
		count := console{out: &out}.measurements(Plan{Scenario: scenario})
		for i := range 600 {
			count(record.Attempt{Start: time.Duration(i) * 100 * time.Millisecond, Class: record.Refused})
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != want {
			t.Errorf("%s: %d lines in a minute, want %d", scenario, len(lines), want)
		}
		n := 10*(len(lines)-1) + 1
		last := progress.Event{Kind: progress.Measurement, At: time.Duration(len(lines)-1) * time.Second, Counts: progress.Counts{Attempts: n, Dropped: n}}
		if got, ok := progress.Parse(lines[len(lines)-1]); !ok || got != last {
			t.Errorf("%s: the last line %q holds %+v, want %+v", scenario, lines[len(lines)-1], got, last)
		}
	}
}

func TestTheConsoleReportsStagesAndCheckpoints(t *testing.T) {
	var out bytes.Buffer
	c := console{&out, func() time.Duration { return 3 * time.Second }}
	a := announcer{newRecorder(vm.NewFrameWriter(make([]byte, 1<<20)), time.Hour), c}
	a.Event(record.Event{Object: "settle", Text: "phase settle", Body: record.Phase{}})
	a.Event(record.Event{Object: "pod-1", Text: "pod-1 is ready", Body: record.Pod{}})
	a.Event(record.Event{Object: scenarios.Checkpoint, Text: "checkpoint 1h", Body: record.Log{}})
	var got []progress.Event
	for line := range strings.Lines(out.String()) {
		e, _ := progress.Parse(line)
		got = append(got, e)
	}
	want := []progress.Event{{Kind: progress.Stage, At: 3 * time.Second, Text: "phase settle", Phase: "settle"}, {Kind: progress.Checkpoint, At: 3 * time.Second, Text: "checkpoint 1h"}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
}
