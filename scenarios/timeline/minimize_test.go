package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/scenarios/timeline"
)

// fakeRunner fails a timeline that has the needed steps, far enough apart, and enough time after the last step.
type fakeRunner struct {
	needs []string
	tail  time.Duration
	apart map[string]time.Duration // minimum time between a needed step and the needed step before it, or the beginning
	runs  int
	total time.Duration // sum of the lengths of the runs
	most  int           // runs until an interruption; 0 for none
}

var errInterrupted = errors.New("interrupted")

func (p *fakeRunner) Fails(_ context.Context, t *timeline.Timeline) (bool, error) {
	if p.runs++; p.most > 0 && p.runs > p.most {
		return false, errInterrupted
	}
	p.total += t.Length()
	return p.fails(t), nil
}

func (p *fakeRunner) fails(t *timeline.Timeline) bool {
	if _, err := t.Check(); err != nil {
		panic("a timeline with an impossible step was run: " + err.Error())
	}
	var before time.Duration
	for _, s := range t.Steps {
		if slices.Contains(p.needs, s.Action()) {
			if s.At-before < p.apart[s.Action()] {
				return false
			}
			before = s.At
		}
	}
	var last time.Duration
	if n := len(t.Steps); n > 1 {
		last = t.Steps[n-2].At
	}
	return t.Length()-last >= p.tail && !slices.ContainsFunc(p.needs, func(need string) bool {
		return !slices.ContainsFunc(t.Steps, func(s timeline.Step) bool { return s.Action() == need })
	})
}

func parsed(t *testing.T, text string) *timeline.Timeline {
	t.Helper()
	line, err := timeline.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return line
}

const long = `hitless timeline 1
nodes 2
lane tcp-long
+0s proxy stop node-1
+1s proxy start node-1
+2s workload deploy a
+3s client open a
+4s workload rollout web
+4s expect rolled-out web within=2m
+5s pod unready web#1
+5s expect unready web#1
+6s pod ready web#1
+6s expect ready web#1
+7s api cut all
+8s api expire node-1
+8s expect watching all
+9s client close a
+10s lane stop tcp-long
+5m end
`

func TestMinimizeKeepsNeededSteps(t *testing.T) {
	for name, c := range map[string]struct {
		needs []string
		tail  time.Duration
		want  string
	}{
		"nothing":     {nil, 0, "+1s end\n"},
		"one step":    {[]string{"api expire node-1"}, 0, "+8s api expire node-1\n+9s end\n"},
		"two apart":   {[]string{"proxy start node-1", "lane stop tcp-long"}, 0, "+0s proxy stop node-1\n+1s proxy start node-1\n+10s lane stop tcp-long\n+11s end\n"},
		"with a wait": {[]string{"pod unready web#1", "expect unready web#1"}, 0, "+5s pod unready web#1\n+5s expect unready web#1\n+6s end\n"},
		"with a tail": {[]string{"pod ready web#1"}, time.Minute, "+6s pod ready web#1\n+1m19s end\n"},
		"its object": {[]string{"client close a"}, 0,
			"+2s workload deploy a\n+3s client open a\n+9s client close a\n+10s end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			line := parsed(t, long)
			runner := &fakeRunner{needs: c.needs, tail: c.tail}
			var trials []timeline.Trial
			got, err := timeline.Minimize(t.Context(), line, runner, func(trial timeline.Trial) { trials = append(trials, trial) })
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.TrimPrefix(got.String(), got.Header()); text != c.want || got.Header() != line.Header() {
				t.Errorf("minimized to\n%s\nwant\n%s", text, c.want)
			}
			if len(trials) != runner.runs || trials[len(trials)-1].Best.String() != got.String() || trials[len(trials)-1].Number != runner.runs {
				t.Errorf("%d trials were reported for %d runs, the last %+v", len(trials), runner.runs, trials[len(trials)-1])
			}
			t.Logf("%d runs", runner.runs)
		})
	}
}

// Minimize halves the time before and between steps of a failure late in a long run, and so early that most trials are short.
func TestMinimizeShortensPauses(t *testing.T) {
	var text strings.Builder
	text.WriteString("hitless timeline 1\nnodes 2\n")
	for i := range 60 { // a rollout every 20 minutes
		fmt.Fprintf(&text, "+%s workload rollout web\n+%[1]s expect rolled-out web within=2m\n", time.Duration(i)*20*time.Minute)
	}
	text.WriteString("+20h0m0s api expire node-1\n+20h30m0s proxy stop node-1\n+21h end\n")
	for name, c := range map[string]struct {
		apart       map[string]time.Duration
		least, most time.Duration
	}{
		"no pause needed":         {nil, 0, 30 * time.Second},
		"pause before the steps":  {map[string]time.Duration{"api expire node-1": 5 * time.Hour}, 5 * time.Hour, 10*time.Hour + time.Minute},
		"pause between the steps": {map[string]time.Duration{"proxy stop node-1": 10 * time.Minute}, 10 * time.Minute, 21 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &fakeRunner{needs: []string{"api expire node-1", "proxy stop node-1"}, apart: c.apart}
			got, err := timeline.Minimize(t.Context(), parsed(t, text.String()), runner, func(timeline.Trial) {})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Steps) != 3 || !runner.fails(got) || got.Length() < c.least || got.Length() > c.most {
				t.Errorf("minimized to\n%s", got)
			}
			if most := 6 * 21 * time.Hour; c.least < time.Hour && runner.total > most {
				t.Errorf("the %d runs take %s of virtual time, want at most %s", runner.runs, runner.total, most)
			}
			t.Logf("%d runs of %s", runner.runs, runner.total)
		})
	}
}

// An interrupted search returns the best timeline so far.
func TestMinimizeKeepsTheBestSoFar(t *testing.T) {
	line, needs := parsed(t, long), []string{"api cut all"}
	uninterrupted := &fakeRunner{needs: needs}
	if _, err := timeline.Minimize(t.Context(), line, uninterrupted, func(timeline.Trial) {}); err != nil || uninterrupted.runs < 3 {
		t.Fatalf("%d runs, %v", uninterrupted.runs, err)
	}
	for most := 1; most < uninterrupted.runs; most++ {
		runner := &fakeRunner{needs: needs, most: most}
		var best *timeline.Timeline
		got, err := timeline.Minimize(t.Context(), line, runner, func(trial timeline.Trial) { best = trial.Best })
		if !errors.Is(err, errInterrupted) {
			t.Fatalf("the search was not interrupted after %d of %d runs: %v", most, uninterrupted.runs, err)
		}
		if got.String() != best.String() || !runner.fails(got) || len(got.Steps) > len(line.Steps) {
			t.Errorf("interrupted after %d runs, the result is\n%s\nand the last report\n%s", most, got, best)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := timeline.Minimize(ctx, line, &fakeRunner{}, func(timeline.Trial) {}); !errors.Is(err, context.Canceled) || got.String() != line.String() {
		t.Errorf("cancelled before the first run: %v\n%s", err, got)
	}
}

// The result fails. Without any one of its steps it does not fail, or is impossible.
func TestMinimizeIsMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := anyTimeline(t)
		runner := &fakeRunner{}
		for _, s := range line.Steps {
			if s.Verb != timeline.End && rapid.IntRange(0, 3).Draw(t, "need") == 0 {
				runner.needs = append(runner.needs, s.Action())
			}
		}
		got, err := timeline.Minimize(context.Background(), line, runner, func(timeline.Trial) {})
		if err != nil || !runner.fails(got) || got.Length() > line.Length() {
			t.Fatalf("%v: minimized to\n%s\nfrom\n%s", err, got, line)
		}
		for i, s := range got.Steps {
			if s.Verb == timeline.End {
				continue
			}
			less := got.With(slices.Delete(slices.Clone(got.Steps), i, i+1))
			if _, err := less.Check(); err == nil && runner.fails(less) {
				t.Fatalf("without %q it still fails:\n%s", s, got)
			}
		}
	})
}
