// Package watch runs a session without a terminal: `hitless watch start` returns once the detector is proved, and `hitless watch stop`
// ends the measurement and prints its report.
//
// The watch is a process in a new session (setsid(2)) that ignores SIGHUP. It holds a lock on its state file, which the kernel releases
// when the process ends in any way. So the lock shows whether a watch is running, also after a SIGKILL or a reboot, when a process
// number would not.
package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/units"
)

// The files of a watch in the folder of its results.
const (
	StateFile = "watch.json"
	LogFile   = "watch.log" // output of the process that measures, and each second with failures
)

// Phase is the phase of a watch.
type Phase string

// The phases of a watch. In phase starting or measuring without a process, the watch was killed.
const (
	Starting  Phase = "starting"  // baseline and proof of the detector
	Measuring Phase = "measuring" // the target may be changed
	Ended     Phase = "ended"     // the reports are written
	Failed    Phase = "failed"    // there is no report, see State.Error
	Collected Phase = "collected" // Stop has returned the report
)

// State is the content of watch.json.
type State struct {
	Phase    Phase     `json:"phase"`
	Pid      int       `json:"pid"` // of the process that measures; 0 before it has started
	Target   string    `json:"target"`
	Started  time.Time `json:"started"`
	Changed  time.Time `json:"changed"`  // when the state was written, each second while the watch runs
	Attempts int       `json:"attempts"` // attempts of the measured lane with known outcomes
	Failures int       `json:"failures"` // those that are not ok
	Error    string    `json:"error,omitempty"`
}

// running reports whether the watch is in a phase that has a process.
func (s State) running() bool { return s.Phase == Starting || s.Phase == Measuring }

func (s State) String() string {
	text := fmt.Sprintf("%s of %s, process %d, since %s", s.Phase, s.Target, s.Pid, s.Started.Local().Format(time.DateTime))
	if s.Phase == Measuring {
		text += fmt.Sprintf(": %s, %d of them failed", units.Plural(s.Attempts, "attempt"), s.Failures)
	}
	return text
}

// stateSize is the fixed size of the file in bytes, so that the state can be written on a full disk.
const stateSize = 4096

// file is an open state file. Processes that inherit the open file share its lock.
type file struct {
	*os.File
	dir string
}

// open opens the state file of a folder; create creates both if they do not exist.
func open(dir string, create bool) (*file, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("creating the folder for the results: %w; give another with --out", err)
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

// lock takes the lock, and returns false when a watch holds it.
func (f *file) lock() (bool, error) {
	taken, err := cache.TryLockRange(f.File)
	return taken, f.lockError(err)
}

// lockWait waits until no watch holds the lock, and takes it.
func (f *file) lockWait() error {
	return f.lockError(cache.LockRange(f.File))
}

// isLocked reports whether a watch holds the lock, without taking it.
func (f *file) isLocked() (bool, error) {
	locked, err := cache.IsLocked(f.File)
	return locked, f.lockError(err)
}

func (f *file) lockError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("locking %s: %w; give a folder on a file system with locks with --out", f.Name(), err)
}

// read returns the state, or the zero State from an empty file.
func (f *file) read() (State, error) {
	const tries = 100 // a concurrent write can make the text incomplete
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
	data, err := json.Marshal(s)
	for err == nil && len(data) >= stateSize && s.Error != "" { // as JSON a letter can have six bytes; the other fields are short
		s.Error = strings.ToValidUTF8(s.Error[:len(s.Error)*9/10], "")
		data, err = json.Marshal(s)
	}
	if err == nil {
		text := bytes.Repeat([]byte{' '}, stateSize)
		copy(text, data)
		text[stateSize-1] = '\n'
		_, err = f.WriteAt(text, 0)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; free some space, or give another folder with --out", f.Name(), err)
	}
	return nil
}
