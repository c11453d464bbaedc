package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/run"
)

// screen shows how runs go: lines of progress with the time since its beginning and, on a terminal, a last line that is
// written anew about each second with what the runs measure. It may be used from several goroutines.
type screen struct {
	w     io.Writer
	now   func() time.Time
	width func() int // of the terminal in letters; 0 where there is none: then there is no last line
	begin time.Time

	mu    sync.Mutex
	runs  []*shownRun // in order of their names
	drawn bool
	at    time.Time // of the last drawing
}

// shownRun is one run in the last line.
type shownRun struct {
	run.Pulse
	rate    float64 // attempts in a second of the run's own time
	first   run.Pulse
	started time.Time // by the wall, when first was told
}

func newScreen(w io.Writer) *screen {
	return &screen{w: w, now: time.Now, width: func() int { return terminalWidth(w) }, begin: time.Now()}
}

// terminalWidth is 0 for what is no terminal.
func terminalWidth(w io.Writer) int {
	f, is := w.(*os.File)
	if !is || !isTerminal(w) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// progress writes a line that stays.
func (s *screen) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	redraw := s.drawn
	s.clear()
	fmt.Fprintf(s.w, "[%4.0fs] %s\n", s.now().Sub(s.begin).Seconds(), text)
	if redraw {
		s.draw()
	}
}

// pulse takes what a run says of its measurement.
func (s *screen) pulse(p run.Pulse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := slices.BinarySearchFunc(s.runs, p.Run, func(r *shownRun, name string) int { return cmp.Compare(r.Run, name) })
	switch {
	case p.Over:
		if known {
			s.runs = slices.Delete(s.runs, i, i+1)
		}
		s.clear()
		return
	case !known:
		s.runs = slices.Insert(s.runs, i, &shownRun{Pulse: p, first: p, started: s.now()})
	default:
		s.runs[i].take(p)
	}
	if s.now().Sub(s.at) >= time.Second {
		s.draw()
	}
}

func (r *shownRun) take(p run.Pulse) {
	if passed := p.At - r.At; passed > 0 {
		r.rate = float64(p.Attempts-r.Attempts) / passed.Seconds()
	}
	r.Pulse = p
}

// text tells one run: its stage, rate, losses, and how its own time goes beside the wall's.
func (r *shownRun) text(now time.Time) string {
	text := fmt.Sprintf("%s: %.0f/s, %d dropped, %d delayed, +%s", cmp.Or(r.Stage, "measuring"), r.rate, r.Dropped, r.Delayed, r.At.Round(time.Second))
	if r.Run != "" {
		text = r.Run + " " + text
	}
	wall, own := now.Sub(r.started), r.At-r.first.At
	if wall >= time.Second {
		text += fmt.Sprintf(" (%s in %s: %.1f times as fast)", own.Round(time.Second), wall.Round(time.Second), own.Seconds()/wall.Seconds())
	}
	return text
}

// draw writes the last line, without its end.
func (s *screen) draw() {
	width := s.width()
	if width == 0 || len(s.runs) == 0 {
		return
	}
	var parts []string
	for _, r := range s.runs {
		parts = append(parts, r.text(s.now()))
	}
	letters := []rune(strings.Join(parts, " | "))
	if len(letters) >= width { // a line that is full would begin the next one
		letters = append(letters[:max(0, width-2)], '…')
	}
	fmt.Fprintf(s.w, "\r\x1b[K%s", string(letters))
	s.drawn, s.at = true, s.now()
}

// clear takes the last line away, before something else is written.
func (s *screen) clear() {
	if s.drawn {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.drawn = false
	}
}
