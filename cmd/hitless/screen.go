package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/reports"
)

// screen shows the progress of runs: lines with the wall time since its beginning and, on a terminal, a last line that is
// redrawn about once a second with the counts of the runs. It may be used from several goroutines.
type screen struct {
	w     io.Writer
	now   func() time.Time
	width func() int // of the terminal in letters; 0 without a terminal, where no last line is drawn
	begin time.Time
	brief bool // stages of runs are only in the last line
	// expect is the length of the earlier run in the same folder, which tells more than an estimate; 0 without one.
	expect time.Duration

	mu    sync.Mutex
	runs  []*shownRun // in order of their names
	drawn bool
	at    time.Time // of the last drawing
}

// shownRun is one run in the last line.
type shownRun struct {
	name        string
	stage       string         // that was reported last
	end         time.Duration  // by the plan; 0 where it is unknown
	about       bool           // end is an estimate
	first, last progress.Event // measurements; their kind is empty before the first one
	rate        float64        // attempts per second of the run's own time
	started     time.Time      // wall time of first
}

func newScreen(w io.Writer) *screen {
	return &screen{w: w, now: time.Now, width: func() int { return terminalWidth(w) }, begin: time.Now()}
}

// terminalWidth returns the width of a terminal, 0 for another writer.
func terminalWidth(w io.Writer) int {
	f, is := w.(*os.File)
	if !is || !isTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width == 0 {
		return 80
	}
	return width
}

// message writes a line of text that stays.
func (s *screen) message(text string) { s.report(progress.Event{Kind: progress.Message, Text: text}) }

// report shows an event of a run.
func (s *screen) report(e progress.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case progress.End:
		s.runs = slices.DeleteFunc(s.runs, func(r *shownRun) bool { return r.name == e.Run })
		s.clear()
	case progress.Measurement:
		s.run(e.Run).measured(e, s.now())
		if s.now().Sub(s.at) >= time.Second {
			s.draw()
		}
	default:
		if e.Kind == progress.Stage {
			s.run(e.Run).begins(e, s.expect)
		}
		if s.brief && e.Run != "" {
			return
		}
		redraw := s.drawn
		s.clear()
		fmt.Fprintf(s.w, "[%4.0fs] %s\n", s.now().Sub(s.begin).Seconds(), e)
		if redraw {
			s.draw()
		}
	}
}

// run returns the run of a name, a new one if it was not shown yet.
func (s *screen) run(name string) *shownRun {
	i, known := slices.BinarySearchFunc(s.runs, name, func(r *shownRun, name string) int { return cmp.Compare(r.name, name) })
	if !known {
		s.runs = slices.Insert(s.runs, i, &shownRun{name: name})
	}
	return s.runs[i]
}

// measured keeps a measurement, which was reported at a wall time.
func (r *shownRun) measured(e progress.Event, wall time.Time) {
	if r.first.Kind == "" {
		r.first, r.started = e, wall
	} else if passed := e.At - r.last.At; passed > 0 {
		r.rate = float64(e.Attempts-r.last.Attempts) / passed.Seconds()
	}
	r.last = e
}

// begins keeps a stage, and the end of the run that it tells. The earlier run tells more than an estimate.
func (r *shownRun) begins(e progress.Event, earlier time.Duration) {
	r.stage = e.Text
	switch {
	case e.End == 0:
	case e.About && earlier > e.At:
		r.end, r.about = earlier, false
	default:
		r.end, r.about = e.End, e.About
	}
}

// text renders a run: its own time and its end, its losses, stage and rate, and how fast its time passes in wall time.
func (r *shownRun) text(now time.Time, earlier time.Duration) string {
	end, about := r.end, ""
	if r.about {
		about = "about "
	}
	if end == 0 {
		end = earlier
	}
	at := fmt.Sprintf("%.0f s", r.last.At.Seconds())
	if end >= r.last.At {
		at = fmt.Sprintf("%.0f of %s%.0f s", r.last.At.Seconds(), about, end.Seconds())
	}
	text := fmt.Sprintf("%s, %d dropped", at, r.last.Dropped)
	if r.last.Delayed > 0 {
		text += fmt.Sprintf(", %d delayed", r.last.Delayed)
	}
	text += fmt.Sprintf(", %s, %.0f/s", cmp.Or(r.stage, "measuring"), r.rate)
	if r.name != "" {
		text = r.name + " " + text
	}
	wall, own := now.Sub(r.started), r.last.At-r.first.At
	if wall >= time.Second {
		text += fmt.Sprintf(", %.1f × real time", own.Seconds()/wall.Seconds())
	}
	return text
}

// expected is the length of the run of the same scenario in a folder; 0 without one.
func expected(dir, scenario string) time.Duration {
	r, err := analysis.Read(filepath.Join(dir, reports.ReportFile))
	if err != nil || r.Early != nil || r.Run.Scenario != scenario {
		return 0
	}
	return time.Duration(r.Run.Duration * float64(time.Second))
}

// draw writes the last line, without a newline.
func (s *screen) draw() {
	width := s.width()
	var parts []string
	for _, r := range s.runs {
		if r.first.Kind != "" {
			parts = append(parts, r.text(s.now(), s.expect))
		}
	}
	if width == 0 || len(parts) == 0 {
		return
	}
	letters := []rune(strings.Join(parts, " | "))
	if len(letters) >= width { // a line that is full would begin the next one
		letters = append(letters[:max(0, width-2)], '…')
	}
	fmt.Fprintf(s.w, "\r\x1b[K%s", string(letters))
	s.drawn, s.at = true, s.now()
}

// clear erases the last line.
func (s *screen) clear() {
	if s.drawn {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.drawn = false
	}
}
