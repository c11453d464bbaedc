// Package progress has the events with which a run reports how far it is: lines of JSON on the console of a guest, and values
// from package run to its callers.
package progress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Kind tells what an event reports.
type Kind string

// The kinds of events.
const (
	Message     Kind = "message"     // Text, with the run's time if it is known
	Stage       Kind = "stage"       // a phase or a step began or ended; Text names it
	Checkpoint  Kind = "checkpoint"  // the record up to At can be read by the host
	Measurement Kind = "measurement" // the counts so far
	Download    Kind = "download"    // Text, with the Transfer so far; of the host, before the run begins
	End         Kind = "end"         // the run is over, whatever its result; nothing follows
)

// Event is one report of a run.
type Event struct {
	Kind Kind          `json:"kind"`
	Run  string        `json:"-"`            // name of the run where several go on at once, else empty
	At   time.Duration `json:"at,omitempty"` // ns since the start of the run, by the run's clock; 0 for messages of the host
	Text string        `json:"text,omitempty"`
	// Phase is the name of a phase that begins, and empty for other events.
	Phase string `json:"phase,omitempty"`
	// End is when the run ends, by its plan: with the beginning of a phase, and 0 where that is unknown. About says that it is an estimate.
	End   time.Duration `json:"-"`
	About bool          `json:"-"`
	Counts
	Transfer `json:"-"`
}

// Transfer is how far a download is.
type Transfer struct {
	Bytes, Total int64         // that are here, and of the whole; Total is 0 where it is not known
	Left         time.Duration // until the end, as an estimate; 0 where it is not known
}

// Counts are the attempts of all measured lanes since the start of the run.
type Counts struct {
	Attempts int `json:"attempts,omitempty"`
	Dropped  int `json:"dropped,omitempty"`
	Delayed  int `json:"delayed,omitempty"`
}

// String renders a message, download, stage or checkpoint as a line of text: the run's name, its time in seconds and the text.
func (e Event) String() string {
	text := e.Text
	if e.Kind != Message && e.Kind != Download || e.At > 0 {
		text = fmt.Sprintf("+%.1fs %s", e.At.Seconds(), text)
	}
	if e.Run != "" {
		text = e.Run + ": " + text
	}
	return text
}

// Lines returns a function that writes messages, downloads, stages and checkpoints as lines of text, and leaves the other events out.
func Lines(write func(line string)) func(Event) {
	return func(e Event) {
		switch e.Kind {
		case Message, Download, Stage, Checkpoint:
			write(e.String())
		}
	}
}

// Named returns a function that adds the name of a run to its events.
func Named(name string, report func(Event)) func(Event) {
	return func(e Event) {
		e.Run = name
		report(e)
	}
}

// linePrefix begins the lines of a console that hold an event.
const linePrefix = "hitless-progress "

// Write writes the event as one line, in one call of w.Write. The same event gives the same bytes.
func Write(w io.Writer, e Event) error {
	var line bytes.Buffer
	line.WriteString(linePrefix)
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		return fmt.Errorf("reporting progress: %w", err)
	}
	_, err := w.Write(line.Bytes())
	return err
}

// Parse reads a line that Write wrote. A line that is cut off, and any other line of a console, holds no event.
func Parse(line string) (e Event, ok bool) {
	text, ok := strings.CutPrefix(line, linePrefix)
	if !ok || json.Unmarshal([]byte(text), &e) != nil || e.Kind == "" {
		return Event{}, false
	}
	return e, true
}
