//go:build linux

package guest

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// recorder writes the record of a run into the region. The first error sticks; the trailer carries it to the host.
type recorder struct {
	mu       sync.Mutex
	frames   *vm.FrameWriter
	attempts *record.AttemptWriter
	thinner  *record.Thinner // nil when every attempt is recorded
	pending  bytes.Buffer
	err      error

	// stopAt is from when on nothing is recorded. It is compared with each time, in every run: so a run that stops does the same
	// until then as one that does not.
	stopAt  time.Duration
	stopped chan struct{} // closed then
	over    bool
}

func newRecorder(frames *vm.FrameWriter, stopAt time.Duration) *recorder {
	r := &recorder{frames: frames, stopAt: stopAt, stopped: make(chan struct{})}
	r.attempts = record.NewAttemptWriter(&r.pending)
	return r
}

// settle records from now on as the plan says, until a time: before anything was measured.
func (r *recorder) settle(plan Plan, stopAt time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopAt = stopAt
	if scenarios.RecordMode.Of(plan.Parameters) == record.RecordThinned {
		r.thin()
	}
}

// thin thins the record from now on: before anything was recorded.
func (r *recorder) thin() { r.thinner = record.NewThinner(r.attempts) }

// Event records an event.
func (r *recorder) Event(e record.Event) {
	line, err := json.Marshal(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.past(e.At) {
		return
	}
	if r.thinner != nil {
		r.thinner.Event(e)
	}
	if err == nil {
		err = r.frames.Write(vm.FrameEvent, append(line, '\n'))
	}
	r.keep(err)
}

// Journal records a piece of the run's timeline.
func (r *recorder) Journal(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.keep(r.frames.Write(vm.FrameTimeline, []byte(text)))
}

// Attempt records an attempt; frames are written in pieces.
func (r *recorder) Attempt(a record.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.past(a.Start + a.Total) {
		return
	}
	if r.thinner != nil {
		r.keep(r.thinner.Attempt(a))
	} else {
		r.keep(r.attempts.Write(a))
	}
	const piece = 32 << 10
	if r.pending.Len() >= piece {
		r.flush()
	}
}

// past reports whether the run is to stop, because something is recorded of that time or later. It is called with r.mu held.
func (r *recorder) past(at time.Duration) bool {
	if at >= r.stopAt && !r.over {
		r.over = true
		close(r.stopped)
	}
	return r.over
}

func (r *recorder) hasStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// file sends a file to the run's folder, also when the run has stopped.
func (r *recorder) file(name string, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(r.frames.WriteFile(name, content))
}

func (r *recorder) flush() {
	if r.pending.Len() > 0 {
		r.keep(r.frames.Write(vm.FrameAttempts, r.pending.Bytes()))
		r.pending.Reset()
	}
}

// flushAll writes what is pending.
func (r *recorder) flushAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(r.attempts.Flush())
	r.flush()
}

// close writes what is pending and the trailer with the reason why the run ended early, if any.
func (r *recorder) close(reason error) {
	if r.thinner != nil {
		r.mu.Lock()
		r.keep(r.thinner.Close())
		r.mu.Unlock()
	}
	r.flushAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == nil {
		reason = r.err
	}
	var text []byte
	if reason != nil {
		text = []byte(reason.Error())
	}
	_ = r.frames.Write(vm.FrameTrailer, text) // its room is reserved
}

func (r *recorder) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}
