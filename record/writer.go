package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// HistoryWriter writes the record of a run into a folder: run.json at once, then events and attempts as they come.
// It is a Recorder: safe for concurrent use, and it keeps the order of calls. Recording never fails in the middle of a
// run; the first error sticks and Close returns it, so a run whose record could not be written cannot pass.
type HistoryWriter struct {
	mu       sync.Mutex
	dir      string
	events   *bufio.Writer
	attempts *AttemptWriter
	thinner  *Thinner // nil when every attempt is recorded
	files    [2]*os.File
	err      error
}

// NewHistoryWriter makes the folder when it is missing, empties the files of an older history, and writes run.json.
// The version of the run is set to HistoryVersion. The record is thinned when run.Record says so; what a Thinner holds is
// written by Close only.
func NewHistoryWriter(dir string, run Run) (*HistoryWriter, error) {
	w := &HistoryWriter{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, w.explain(err)
	}
	run.SchemaVersion = HistoryVersion
	if run.Parameters == nil {
		run.Parameters = map[string]string{}
	}
	data, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return nil, w.explain(err)
	}
	if err := os.WriteFile(filepath.Join(dir, RunFile), append(data, '\n'), 0o644); err != nil {
		return nil, w.explain(err)
	}
	for i, name := range [...]string{EventsFile, AttemptsFile} {
		if w.files[i], err = os.Create(filepath.Join(dir, name)); err != nil {
			return nil, w.explain(errors.Join(err, w.closeFiles()))
		}
	}
	w.events = bufio.NewWriterSize(w.files[0], 64<<10)
	w.attempts = NewAttemptWriter(w.files[1])
	if run.Record == RecordThinned {
		w.thinner = NewThinner(w.attempts)
	}
	return w, nil
}

// Event appends an event.
func (w *HistoryWriter) Event(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thinner != nil {
		w.thinner.Event(e)
	}
	line, err := e.MarshalJSON()
	if err == nil {
		_, err = w.events.Write(append(line, '\n'))
	}
	w.keep(err)
}

// Attempt appends an attempt.
func (w *HistoryWriter) Attempt(a Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thinner != nil {
		w.keep(w.thinner.Attempt(a))
		return
	}
	w.keep(w.attempts.Write(a))
}

// Flush hands what is buffered to the operating system and returns the first error of the writer's life. A long run
// calls it now and then, so that a history whose writer was killed is readable up to that point.
func (w *HistoryWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
	return w.explain(w.err)
}

func (w *HistoryWriter) flush() {
	w.keep(w.events.Flush())
	w.keep(w.attempts.Flush())
}

// Close flushes and closes the files, and returns the first error of the writer's life.
func (w *HistoryWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.thinner != nil {
		w.keep(w.thinner.Close())
	}
	w.flush()
	w.keep(w.closeFiles())
	return w.explain(w.err)
}

func (w *HistoryWriter) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *HistoryWriter) closeFiles() error {
	var errs []error
	for i, f := range w.files {
		if f != nil {
			errs = append(errs, f.Close())
			w.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// A historyError names the folder once, however often the error is handed on.
type historyError struct {
	dir string
	err error
}

func (e *historyError) Error() string {
	advice := ""
	switch {
	case errors.Is(e.err, syscall.ENOSPC), errors.Is(e.err, syscall.EDQUOT):
		advice = " (the disk is full: free some space, or name another folder with --out)"
	case errors.Is(e.err, os.ErrPermission), errors.Is(e.err, syscall.EROFS):
		advice = " (name a writable folder with --out)"
	}
	return fmt.Sprintf("writing the history in %s: %v%s", e.dir, e.err, advice)
}

func (e *historyError) Unwrap() error { return e.err }

func (w *HistoryWriter) explain(err error) error {
	var told *historyError
	if err == nil || errors.As(err, &told) {
		return err
	}
	return &historyError{dir: w.dir, err: err}
}
