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

// paper is a runner that fails when a timeline has all of some steps, and stays open long enough after them.
type paper struct {
	needs []string
	tail  time.Duration
	apart map[string]time.Duration // how long after the needed step before it, or the beginning, a needed step has to be
	runs  int
	total time.Duration // the lengths of all that was run
	most  int           // runs until it is interrupted; 0 for never
}

var errInterrupted = errors.New("interrupted")

func (p *paper) Fails(_ context.Context, t *timeline.Timeline) (bool, error) {
	if p.runs++; p.most > 0 && p.runs > p.most {
		return false, errInterrupted
	}
	p.total += t.Length()
	return p.fails(t), nil
}

func (p *paper) fails(t *timeline.Timeline) bool {
	if _, err := t.Check(); err != nil {
		panic("a timeline was run that cannot be done: " + err.Error())
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

func TestMinimizeLeavesWhatTheFailureNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		needs []string
		tail  time.Duration
		want  string
	}{
		"nothing":     {nil, 0, "+1s end\n"},
		"one step":    {[]string{"api expire node-1"}, 0, "+8s api expire node-1\n+9s end\n"},
		"two apart":   {[]string{"proxy start node-1", "lane stop tcp-long"}, 0, "+0s proxy stop node-1\n+1s proxy start node-1\n+10s lane stop tcp-long\n+11s end\n"},
		"its waiting": {[]string{"pod unready web#1", "expect unready web#1"}, 0, "+5s pod unready web#1\n+5s expect unready web#1\n+6s end\n"},
		"and time":    {[]string{"pod ready web#1"}, time.Minute, "+6s pod ready web#1\n+1m19s end\n"},
		"what it is done to": {[]string{"client close a"}, 0,
			"+2s workload deploy a\n+3s client open a\n+9s client close a\n+10s end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			line := parsed(t, long)
			runner := &paper{needs: c.needs, tail: c.tail}
			var trials []timeline.Trial
			got, err := timeline.Minimize(t.Context(), line, runner, func(trial timeline.Trial) { trials = append(trials, trial) })
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.TrimPrefix(got.String(), got.Header()); text != c.want || got.Header() != line.Header() {
				t.Errorf("left is\n%s\nwant\n%s", text, c.want)
			}
			if len(trials) != runner.runs || trials[len(trials)-1].Best.String() != got.String() || trials[len(trials)-1].Number != runner.runs {
				t.Errorf("%d trials were told of %d runs, the last %+v", len(trials), runner.runs, trials[len(trials)-1])
			}
			t.Logf("%d runs", runner.runs)
		})
	}
}

// A failure late in a long run is brought near: the time before its steps, and between them, is halved as long as it fails, and so early
// that most trials are short.
func TestMinimizeTakesTimeOut(t *testing.T) {
	var text strings.Builder
	text.WriteString("hitless timeline 1\nnodes 2\n")
	for i := range 60 { // a rollout each 20 minutes
		fmt.Fprintf(&text, "+%s workload rollout web\n+%[1]s expect rolled-out web within=2m\n", time.Duration(i)*20*time.Minute)
	}
	text.WriteString("+20h0m0s api expire node-1\n+20h30m0s proxy stop node-1\n+21h end\n")
	for name, c := range map[string]struct {
		apart       map[string]time.Duration
		least, most time.Duration
	}{
		"none of it is needed": {nil, 0, 30 * time.Second},
		"what comes before is": {map[string]time.Duration{"api expire node-1": 5 * time.Hour}, 5 * time.Hour, 10*time.Hour + time.Minute},
		"what is between is":   {map[string]time.Duration{"proxy stop node-1": 10 * time.Minute}, 10 * time.Minute, 21 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &paper{needs: []string{"api expire node-1", "proxy stop node-1"}, apart: c.apart}
			got, err := timeline.Minimize(t.Context(), parsed(t, text.String()), runner, func(timeline.Trial) {})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Steps) != 3 || !runner.fails(got) || got.Length() < c.least || got.Length() > c.most {
				t.Errorf("left is\n%s", got)
			}
			if most := 6 * 21 * time.Hour; c.least < time.Hour && runner.total > most {
				t.Errorf("the %d runs take %s of virtual time, want at most %s", runner.runs, runner.total, most)
			}
			t.Logf("%d runs of %s", runner.runs, runner.total)
		})
	}
}

// Whoever is interrupted has the best so far.
func TestMinimizeKeepsTheBestSoFar(t *testing.T) {
	line, needs := parsed(t, long), []string{"api cut all"}
	uninterrupted := &paper{needs: needs}
	if _, err := timeline.Minimize(t.Context(), line, uninterrupted, func(timeline.Trial) {}); err != nil || uninterrupted.runs < 3 {
		t.Fatalf("%d runs, %v", uninterrupted.runs, err)
	}
	for most := 1; most < uninterrupted.runs; most++ {
		runner := &paper{needs: needs, most: most}
		var best *timeline.Timeline
		got, err := timeline.Minimize(t.Context(), line, runner, func(trial timeline.Trial) { best = trial.Best })
		if !errors.Is(err, errInterrupted) {
			t.Fatalf("after %d of %d runs nobody was interrupted: %v", most, uninterrupted.runs, err)
		}
		if got.String() != best.String() || !runner.fails(got) || len(got.Steps) > len(line.Steps) {
			t.Errorf("interrupted after %d runs, the best is\n%s\ntold was\n%s", most, got, best)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := timeline.Minimize(ctx, line, &paper{}, func(timeline.Trial) {}); !errors.Is(err, context.Canceled) || got.String() != line.String() {
		t.Errorf("cancelled before the first run: %v\n%s", err, got)
	}
}

// Whatever a failure needs, what is left fails, and without any one step more it does not, or cannot be done.
func TestWhatIsLeftIsMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := anyTimeline(t)
		runner := &paper{}
		for _, s := range line.Steps {
			if s.Verb != timeline.End && rapid.IntRange(0, 3).Draw(t, "need") == 0 {
				runner.needs = append(runner.needs, s.Action())
			}
		}
		got, err := timeline.Minimize(context.Background(), line, runner, func(timeline.Trial) {})
		if err != nil || !runner.fails(got) || got.Length() > line.Length() {
			t.Fatalf("%v: left is\n%s\nof\n%s", err, got, line)
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
