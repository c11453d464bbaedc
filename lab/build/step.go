package build

import (
	"fmt"
	"time"
)

// Step is the progress of a build or of a download.
type Step struct {
	Text string
	// Bytes of Total are in the cache, and the rest takes about Left. They are 0 for other steps, and where they are not known.
	Bytes, Total int64
	Left         time.Duration
}

// stepTick is the interval of progress reports.
const stepTick = 10 * time.Second

func (b *Builder) report(what fmt.Stringer, line string) { b.step(what, Step{Text: line}) }

// step reports a step of a target or of a group.
func (b *Builder) step(what fmt.Stringer, s Step) {
	if b.Progress != nil {
		b.reporting.Lock()
		defer b.reporting.Unlock()
		s.Text = what.String() + ": " + s.Text
		b.Progress(s)
	}
}

// megabytes is a size as text.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
