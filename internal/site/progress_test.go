package site

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
)

func TestConsoleIsReported(t *testing.T) {
	events := []progress.Event{
		{Kind: progress.Stage, At: 2500 * time.Millisecond, Text: "scenario begins"},
		{Kind: progress.Measurement, At: 3 * time.Second, Counts: progress.Counts{Attempts: 17, Dropped: 2, Delayed: 1}},
		{Kind: progress.Checkpoint, At: 3500 * time.Millisecond, Text: "checkpoint 1h of 2h"},
	}
	var console bytes.Buffer
	for _, e := range events {
		if err := progress.Write(&console, e); err != nil {
			t.Fatal(err)
		}
	}
	cutOff := console.String()[:60]
	lines := append([]string{"[    0.1] a line of the kernel", "hitless: waiting for a free CPU", cutOff}, strings.Split(strings.TrimSpace(console.String()), "\n")...)
	var got []progress.Event
	o := Call{Progress: progress.Named("seed 1", func(e progress.Event) { got = append(got, e) })}
	for _, line := range lines {
		o.guestLine(line)
	}
	want := append([]progress.Event{{Kind: progress.Message, Text: "waiting for a free CPU"}}, events...)
	for i := range want {
		want[i].Run = "seed 1"
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := lastLines(lines, 4), []string{lines[1], cutOff, "+2.5s scenario begins", "+3.5s checkpoint 1h of 2h"}; !slices.Equal(got, want) {
		t.Errorf("the last lines are %q, want %q", got, want)
	}
	if e := (Call{}).guestLine(lines[5]); e != events[2] { // without a caller that wants events
		t.Errorf("%+v, want %+v", e, events[2])
	}
}
