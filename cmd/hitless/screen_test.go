package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
)

// terminal is what a terminal shows of what is written to it: \r goes to the beginning of the line, and the sequence for
// that erases it.
func terminal(written string) string {
	lines := strings.Split(written, "\n")
	for i, line := range lines {
		lines[i] = line[strings.LastIndex(line, "\r\x1b[K")+1:]
		lines[i] = strings.TrimPrefix(lines[i], "\x1b[K")
	}
	return strings.Join(lines, "\n")
}

// shown is a screen whose clock and width the test sets.
func shown(width int) (s *screen, out *bytes.Buffer, pass func(time.Duration)) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	out = &bytes.Buffer{}
	s = &screen{w: out, now: func() time.Time { return now }, width: func() int { return width }, begin: now}
	return s, out, func(d time.Duration) { now = now.Add(d) }
}

func measurement(at time.Duration, attempts, dropped, delayed int) progress.Event {
	return progress.Event{Kind: progress.Measurement, At: at, Counts: progress.Counts{Attempts: attempts, Dropped: dropped, Delayed: delayed}}
}

func stage(at time.Duration, text string) progress.Event {
	return progress.Event{Kind: progress.Stage, At: at, Text: text}
}

func TestLastLineShowsRun(t *testing.T) {
	s, out, pass := shown(200)
	s.message("booting")
	s.report(stage(9*time.Second, "rollout 1"))
	for i := range 5 {
		s.report(measurement(time.Duration(10+2*i)*time.Second, 1000+200*i, 3*i, i))
		pass(time.Second)
	}
	last := "18 s, 12 dropped, 4 delayed, rollout 1, 100/s, 2.0 × real time"
	if want := "[   0s] booting\n[   0s] +9.0s rollout 1\n" + last; terminal(out.String()) != want {
		t.Errorf("the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
	s.report(stage(20*time.Second, "rollout 2"))
	last = strings.Replace(strings.Replace(last, "rollout 1", "rollout 2", 1), "2.0 ×", "1.6 ×", 1)
	if want := "[   0s] booting\n[   0s] +9.0s rollout 1\n[   5s] +20.0s rollout 2\n" + last; terminal(out.String()) != want {
		t.Errorf("after a line of progress the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
	s.report(progress.Event{Kind: progress.End})
	s.message("done")
	if want := "[   0s] booting\n[   0s] +9.0s rollout 1\n[   5s] +20.0s rollout 2\n[   5s] done\n"; terminal(out.String()) != want {
		t.Errorf("when the run is over the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
}

func TestLastLineIsDrawnOncePerSecondAndFits(t *testing.T) {
	s, out, pass := shown(60)
	report := func(name string, e progress.Event) { progress.Named(name, s.report)(e) }
	for i := range 40 {
		for _, name := range []string{"kube-proxy-seed-1", "bundled-seed-1"} {
			report(name, measurement(time.Duration(i)*time.Second, i, 0, 0))
		}
		pass(100 * time.Millisecond)
	}
	lines := strings.Split(out.String(), "\r\x1b[K")[1:]
	if len(lines) != 4 {
		t.Errorf("%d lines in four seconds: %q", len(lines), lines)
	}
	for _, line := range lines[1:] {
		if n := len([]rune(line)); n >= 60 || !strings.HasPrefix(line, "bundled-seed-1 ") || !strings.HasSuffix(line, "…") {
			t.Errorf("%d letters: %q", n, line)
		}
	}
	report("bundled-seed-1", progress.Event{Kind: progress.End})
	pass(time.Second)
	report("kube-proxy-seed-1", measurement(time.Minute, 50, 0, 0))
	if text := terminal(out.String()); !strings.HasPrefix(text, "kube-proxy-seed-1 60 s, 0 dropped") {
		t.Errorf("of two runs one is over, and the terminal shows %q", text)
	}
}

// The line of a single run fits 60 columns, and tells how much is left where an earlier run in the folder tells the length.
func TestLastLineTellsTheLength(t *testing.T) {
	s, out, pass := shown(60)
	for _, c := range []struct {
		expect time.Duration
		want   string
	}{{131 * time.Second, "57 of 131 s, "}, {0, "57 s, "}, {20 * time.Second, "57 s, "}} {
		out.Reset()
		s.expect = c.expect
		s.report(measurement(57*time.Second, 5700, 12, 0))
		pass(time.Second)
		if text := terminal(out.String()); !strings.HasPrefix(text, c.want) || len([]rune(text)) >= 60 {
			t.Errorf("%v: %q", c.expect, text)
		}
	}
	if d := expected(t.TempDir(), "rollout"); d != 0 {
		t.Errorf("an empty folder tells a length of %v", d)
	}
}

// Without an earlier run the plan tells the length, from the beginning of a phase on. An earlier run tells more than an estimate, and less
// than the last phase.
func TestLastLineTellsThePlannedLength(t *testing.T) {
	s, out, pass := shown(60)
	for _, c := range []struct {
		earlier, end time.Duration
		about        bool
		want         string
	}{{0, 131 * time.Second, true, "57 of about 131 s, "}, {120 * time.Second, 131 * time.Second, true, "57 of 120 s, "}, {30 * time.Second, 131 * time.Second, true, "57 of about 131 s, "},
		{120 * time.Second, 131 * time.Second, false, "57 of 131 s, "}, {0, 40 * time.Second, true, "57 s, "}} {
		s.expect = c.earlier
		s.report(progress.Event{Kind: progress.Stage, At: 33 * time.Second, Text: "phase baseline", End: c.end, About: c.about})
		pass(time.Second)
		out.Reset()
		s.report(measurement(57*time.Second, 5700, 12, 0))
		pass(time.Second)
		if text := terminal(out.String()); !strings.HasPrefix(text, c.want) || len([]rune(text)) >= 60 {
			t.Errorf("%+v: %q", c, text)
		}
	}
}

// Where lines are kept, there are only those that stay, and no control characters.
func TestNoLastLineWithoutTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := newScreen(file)
	for i := range 5 {
		s.at = time.Time{}
		s.report(measurement(time.Duration(i)*time.Second, i, 0, 0))
	}
	s.message("done")
	s.report(progress.Event{Kind: progress.End})
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "s] done\n") || strings.ContainsAny(got, "\r\x1b") {
		t.Errorf("%q", got)
	}
}

// The pace of checkpoints is counted from the first event of the guest.
func TestCheckpointsShowPace(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := pace{now: func() time.Time { return now }}
	for _, step := range []struct {
		after time.Duration
		e     progress.Event
		want  string
	}{
		{time.Minute, progress.Event{Kind: progress.Message, Text: "waiting for a free CPU"}, "waiting for a free CPU"},
		{time.Minute, stage(0, "laying the network"), "+0.0s laying the network"},
		{10 * time.Second, progress.Event{Kind: progress.Checkpoint, At: time.Hour, Text: "checkpoint 1h0m0s of 24h0m0s: all well"},
			"+3600.0s checkpoint 1h0m0s of 24h0m0s: all well; 10s of wall time, 360 times as fast"},
		{time.Second, stage(3700*time.Second, "rollout 8 of 240"), "+3700.0s rollout 8 of 240"},
		{7 * time.Second, progress.Event{Kind: progress.Checkpoint, At: 2 * time.Hour, Text: "checkpoint 2h0m0s of 24h0m0s: all well"},
			"+7200.0s checkpoint 2h0m0s of 24h0m0s: all well; 18s of wall time, 400 times as fast"},
	} {
		now = now.Add(step.after)
		if got := p.add(step.e).String(); got != step.want {
			t.Errorf("%+v is shown as %q, want %q", step.e, got, step.want)
		}
	}
}
