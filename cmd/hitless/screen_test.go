package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/prober"
	"github.com/hitless/hitless/internal/run"
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

func pulse(at time.Duration, attempts, dropped, delayed int) run.Pulse {
	return run.Pulse{Stage: "rollout 1", Pulse: prober.Pulse{At: at, Attempts: attempts, Dropped: dropped, Delayed: delayed}}
}

func TestTheLastLineTellsTheRun(t *testing.T) {
	s, out, pass := shown(200)
	s.progress("booting")
	for i := range 5 {
		s.pulse(pulse(time.Duration(10+2*i)*time.Second, 1000+200*i, 3*i, i))
		pass(time.Second)
	}
	last := "rollout 1: 100/s, 12 dropped, 4 delayed, +18s (8s in 4s: 2.0 times as fast)"
	if want := "[   0s] booting\n" + last; terminal(out.String()) != want {
		t.Errorf("the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
	s.progress("+20.0s rollout 2")
	last = strings.Replace(last, "in 4s: 2.0", "in 5s: 1.6", 1)
	if want := "[   0s] booting\n[   5s] +20.0s rollout 2\n" + last; terminal(out.String()) != want {
		t.Errorf("after a line of progress the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
	s.pulse(run.Pulse{Over: true})
	s.progress("done")
	if want := "[   0s] booting\n[   5s] +20.0s rollout 2\n[   5s] done\n"; terminal(out.String()) != want {
		t.Errorf("when the run is over the terminal shows\n%s\nwant\n%s", terminal(out.String()), want)
	}
}

func TestTheLastLineIsDrawnOnceASecondAndFits(t *testing.T) {
	s, out, pass := shown(60)
	for i := range 40 {
		for _, name := range []string{"kube-proxy-seed-1", "bundled-seed-1"} {
			p := pulse(time.Duration(i)*time.Second, i, 0, 0)
			p.Run = name
			s.pulse(p)
		}
		pass(100 * time.Millisecond)
	}
	lines := strings.Split(out.String(), "\r\x1b[K")[1:]
	if len(lines) != 4 {
		t.Errorf("%d lines in four seconds: %q", len(lines), lines)
	}
	for _, line := range lines[1:] {
		if n := len([]rune(line)); n >= 60 || !strings.HasPrefix(line, "bundled-seed-1 rollout 1") || !strings.HasSuffix(line, "…") {
			t.Errorf("%d letters: %q", n, line)
		}
	}
	s.pulse(run.Pulse{Run: "bundled-seed-1", Over: true})
	pass(time.Second)
	p := pulse(time.Minute, 50, 0, 0)
	p.Run = "kube-proxy-seed-1"
	s.pulse(p)
	if text := terminal(out.String()); !strings.HasPrefix(text, "kube-proxy-seed-1 rollout 1") {
		t.Errorf("of two runs one is over, and the terminal shows %q", text)
	}
}

// Where lines are kept, there are only those that stay, and no control characters.
func TestWithoutATerminalThereIsNoLastLine(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := newScreen(file)
	for i := range 5 {
		s.at = time.Time{}
		s.pulse(pulse(time.Duration(i)*time.Second, i, 0, 0))
	}
	s.progress("done")
	s.pulse(run.Pulse{Over: true})
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "s] done\n") || strings.ContainsAny(got, "\r\x1b") {
		t.Errorf("%q", got)
	}
}
