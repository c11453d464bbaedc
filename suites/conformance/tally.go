package conformance

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/internal/progress"
)

// tally reports each spec that did not pass, and each run whose specs are all judged.
type tally struct {
	report func(progress.Event)
	begun  time.Time

	mu     sync.Mutex
	left   map[*Run]int // specs that are not judged yet
	counts map[*Run]map[State]int
	done   int // runs
}

func newTally(planned []Planned, report func(progress.Event)) *tally {
	t := &tally{report: report, begun: time.Now(), left: map[*Run]int{}, counts: map[*Run]map[State]int{}}
	for _, p := range planned {
		if p.Skip == "" {
			t.left[p.Run]++
			t.counts[p.Run] = map[State]int{}
		}
	}
	return t
}

// judged counts a spec.
func (t *tally) judged(p Planned, o outcome) {
	if t.report == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.State != Passed {
		t.say("%s: %s: %s", o.State, p.Name, strings.Join(o.Reasons, "; "))
	}
	t.counts[p.Run][o.State]++
	if t.left[p.Run]--; t.left[p.Run] > 0 {
		return
	}
	t.done++
	text := fmt.Sprintf("run %d of %d, %s: %s", t.done, len(t.counts), p.Run.Name, inWords(t.counts[p.Run]))
	if others := len(t.counts) - t.done; others > 0 {
		text += fmt.Sprintf("; about %s left", (time.Since(t.begun) / time.Duration(t.done) * time.Duration(others)).Round(10*time.Second))
	}
	t.say("%s", text)
}

func (t *tally) say(format string, values ...any) {
	t.report(progress.Event{Kind: progress.Message, Text: fmt.Sprintf(format, values...)})
}

// inWords lists the states that occur, with their counts.
func inWords(counts map[State]int) string {
	var words []string
	for _, state := range states {
		if n := counts[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return sentence(words)
}
