// Package watch lets a session go on without the terminal that started it: `hitless watch start` returns when the
// detector is proved and the change may be made, `hitless watch stop` ends the measurement and has its report.
//
// What is between them is one process in a session of its own (setsid(2)), without a controlling terminal and deaf to
// SIGHUP. It holds a lock on its state file for as long as it lives, and the kernel lets go of that however the process
// ends. So nobody has to guess from a number whether a watch is running, also not after a kill -9 or a restart of the
// machine: the state says what the watch was doing, and the lock whether it still does.
package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// The files of a watch in its folder, beside the results.
const (
	StateFile = "watch.json"
	LogFile   = "watch.log" // what the process that measures says, and each second with failures
)

// Phase is how far a watch has come.
type Phase string

// The phases. A watch in one of the first two whose process is gone did not end in order.
const (
	Starting  Phase = "starting"  // baseline and proof of the detector
	Measuring Phase = "measuring" // the change may be made
	Ended     Phase = "ended"     // in order: the reports are written
	Failed    Phase = "failed"    // Error says why there is no report
	Collected Phase = "collected" // its report was handed out by Stop
)

// State is watch.json.
type State struct {
	Phase    Phase     `json:"phase"`
	Pid      int       `json:"pid"` // of the process that measures; 0 before it has begun
	Target   string    `json:"target"`
	Started  time.Time `json:"started"`
	Changed  time.Time `json:"changed"`  // when this was written; each second while it runs
	Attempts int       `json:"attempts"` // of the measured lane, whose outcomes are known
	Failures int       `json:"failures"` // those of them that are not ok
	Error    string    `json:"error,omitempty"`
}

// running reports whether a process is meant to measure.
func (s State) running() bool { return s.Phase == Starting || s.Phase == Measuring }

func (s State) String() string {
	text := fmt.Sprintf("%s of %s, process %d, since %s", s.Phase, s.Target, s.Pid, s.Started.Local().Format(time.DateTime))
	if s.Phase == Measuring {
		text += fmt.Sprintf(": %d attempts, %d of them failed", s.Attempts, s.Failures)
	}
	return text
}

// stateRoom is what the state takes, always: its end can then be told on a full disk, too.
const stateSize = 4096

// file is an open state file. Its lock belongs to the open file, and to whoever inherits that.
type file struct {
	*os.File
	dir string
}

// open opens the state of a folder; create makes both.
func open(dir string, create bool) (*file, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making the folder for the results: %w; give another with --out", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, StateFile), flags, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no watch was started in %s: it has no %s; `hitless watch start HOST:PORT --out %s` starts one", dir, StateFile, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the state of the watch in %s: %w; give another folder with --out", dir, err)
	}
	return &file{f, dir}, nil
}

// lock takes the lock, and returns false when a watch has it.
func (f *file) lock() (bool, error) {
	taken, err := cache.TryLockRange(f.File)
	return taken, f.lockError(err)
}

// await takes the lock as soon as the watch that has it is gone.
func (f *file) lockWait() error {
	return f.lockError(cache.LockRange(f.File))
}

// held reports whether a watch has the lock, without taking it.
func (f *file) isLocked() (bool, error) {
	locked, err := cache.IsLocked(f.File)
	return locked, f.lockError(err)
}

func (f *file) lockError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("locking %s: %w; name a folder on a file system that has locks with --out", f.Name(), err)
}

// read returns the state; the zero one before anything was written.
func (f *file) read() (State, error) {
	const tries = 100 // who reads may meet who writes
	var s State
	var err error
	for range tries {
		data := make([]byte, stateSize)
		n, failed := f.ReadAt(data, 0)
		if failed != nil && !errors.Is(failed, io.EOF) {
			return s, fmt.Errorf("reading %s: %w", f.Name(), failed)
		}
		data = bytes.TrimSpace(data[:n])
		if len(data) == 0 {
			return State{}, nil
		}
		s = State{}
		if err = json.Unmarshal(data, &s); err == nil {
			return s, nil
		}
	}
	return s, fmt.Errorf("reading %s: %w; it is damaged: remove it if no watch is running in %s", f.Name(), err, f.dir)
}

// write replaces the state in place.
func (f *file) write(s State) error {
	s.Changed = time.Now().Round(0)
	const longest = stateSize / 2 // of the error; the rest is short
	s.Error = s.Error[:min(len(s.Error), longest)]
	data, err := json.Marshal(s)
	if err == nil {
		_, err = f.WriteAt(append(data, bytes.Repeat([]byte{'\n'}, max(0, stateSize-len(data)))...), 0)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; free some space, or give another folder with --out", f.Name(), err)
	}
	return nil
}
