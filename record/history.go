package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
)

// HistoryVersion is the version of the files in a history folder: run.json, events.ndjson and attempts.bin.
const HistoryVersion = 1

// The files of a history.
const (
	RunFile      = "run.json"
	EventsFile   = "events.ndjson"
	AttemptsFile = "attempts.bin"
)

// TimelineFile stands beside them: what was done and when, for `hitless replay`. It is no part of what is judged or hashed.
const TimelineFile = "timeline"

// History reads the record of a run from its folder. It is the only reader; everything else goes through it.
type History struct {
	dir string
	Run Run
}

// OpenHistory opens the folder of a history (the `history` folder of a run, or the run's folder itself).
// A version that this program does not read is an error that says so.
func OpenHistory(dir string) (*History, error) {
	dir = historyFolder(dir)
	data, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		return nil, fmt.Errorf("opening the history in %s: %w (a run writes it to --out)", dir, err)
	}
	h := &History{dir: dir}
	if err := json.Unmarshal(data, &h.Run); err != nil {
		return nil, fmt.Errorf("reading %s: %w (it is damaged: copy the folder again, or repeat the run)", filepath.Join(dir, RunFile), err)
	}
	if h.Run.SchemaVersion != HistoryVersion {
		return nil, fmt.Errorf("the history in %s has version %d; this program reads version %d: take the hitless that wrote it", dir, h.Run.SchemaVersion, HistoryVersion)
	}
	return h, nil
}

// Dir is the history folder.
func (h *History) Dir() string { return h.dir }

// Events yields the events in the order in which they were recorded. After an EventError the events go on; any other error ends
// them.
func (h *History) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := os.Open(filepath.Join(h.dir, EventsFile))
		if err != nil {
			yield(Event{}, fmt.Errorf("opening the events: %w", err))
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			e, err := decodeLine(lines.Bytes())
			if err != nil && !errors.As(err, new(*EventError)) {
				yield(e, fmt.Errorf("%s:%d: %w", EventsFile, n, err))
				return
			}
			if !yield(e, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, fmt.Errorf("reading the events: %w", err))
		}
	}
}

// Attempts yields the attempts one by one, in the order in which their outcomes became known. The first bucket of a thinned
// record is an error: see Entries.
func (h *History) Attempts() iter.Seq2[Attempt, error] {
	return func(yield func(Attempt, error) bool) {
		for e, err := range h.Entries() {
			if err == nil && e.Bucket != nil {
				err = errThinned
			}
			if !yield(e.Attempt, err) || err != nil {
				return
			}
		}
	}
}

// Entries yields the whole record of attempts: each attempt, in the order in which their outcomes became known, and in a
// thinned record buckets of them.
func (h *History) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, err := os.Open(filepath.Join(h.dir, AttemptsFile))
		if err != nil {
			yield(Entry{}, fmt.Errorf("opening the attempts: %w", err))
			return
		}
		defer f.Close()
		r := NewAttemptReader(f)
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", AttemptsFile, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Origin says where a report comes from: how to repeat the run, and the hash that a repetition is compared by.
type Origin struct {
	Command       string // the one command that repeats the run
	HistorySha256 string // see HistorySha256
}

// Origin computes the hash of the history's files; it reads all of them.
func (h *History) Origin() (Origin, error) {
	sum, err := HistorySha256(h.dir)
	return Origin{Command: h.Run.Command, HistorySha256: sum}, err
}
