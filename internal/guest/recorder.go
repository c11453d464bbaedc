package guest

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/scenarios"
)

// recorder writes the record of a run into the region. The first error sticks; the trailer carries it to the host.
type recorder struct {
	mu       sync.Mutex
	frames   *vm.FrameWriter
	attempts *reports.AttemptWriter
	thinner  *reports.Thinner // nil when every attempt is recorded
	pending  bytes.Buffer
	err      error
}

func newRecorder(frames *vm.FrameWriter) *recorder {
	r := &recorder{frames: frames}
	r.attempts = reports.NewAttemptWriter(&r.pending)
	return r
}

// settle records from now on as the plan says: before anything was measured.
func (r *recorder) settle(plan Plan) {
	if plan.Parameters[scenarios.RecordKey] == reports.RecordThinned {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.thin()
	}
}

// thin thins the record from now on: before anything was recorded.
func (r *recorder) thin() { r.thinner = reports.NewThinner(r.attempts) }

// Event records an event.
func (r *recorder) Event(e reports.Event) {
	line, err := json.Marshal(e)
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.keep(r.frames.Write(vm.FrameTimeline, []byte(text)))
}

// Attempt records an attempt; frames are written in pieces.
func (r *recorder) Attempt(a reports.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
