package run

import (
	"strings"

	"github.com/hitless/hitless/internal/progress"
)

// report passes an event on to the caller, if it wants any.
func (o Options) report(e progress.Event) {
	if o.Progress != nil {
		o.Progress(e)
	}
}

// message reports a line of text of the host.
func (o Options) message(text string) { o.report(progress.Event{Kind: progress.Message, Text: text}) }

// guestPrefix begins the lines of a console that package vm writes about the guest.
const guestPrefix = "hitless: "

// guestLine reports what a line of a guest's console holds, and returns its event. Lines of the kernel are not reported.
func (o Options) guestLine(line string) progress.Event {
	e, ok := progress.Parse(line)
	if text, about := strings.CutPrefix(line, guestPrefix); about {
		e, ok = progress.Event{Kind: progress.Message, Text: text}, true
	}
	if ok {
		o.report(e)
	}
	return e
}

// lastLines returns the last n lines of a console, with events as text and without measurements.
func lastLines(lines []string, n int) []string {
	var all []string
	for _, line := range lines {
		switch e, ok := progress.Parse(line); {
		case !ok:
			all = append(all, line)
		case e.Kind != progress.Measurement:
			all = append(all, e.String())
		}
	}
	return all[max(0, len(all)-n):]
}
