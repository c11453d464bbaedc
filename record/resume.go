package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Left is what a killed writer left of a history.
type Left struct {
	Run  Run
	Last time.Duration // the latest time in the record
	// Lanes are those that were declared and have neither a LaneEnd nor a MissingRecord, in the order of their declaration.
	Lanes    []LeftLane
	LastLane uint16        // the largest id of all lanes
	Names    []string      // of all lanes
	Phase    string        // the last phase
	Since    time.Duration // when it began
	Drawn    uint64        // at least as many attempts as all lanes have made: those in the record, and the last ones of each lane, which may be missing
}

// unwritten is more than the time for which the thinner keeps attempts before it writes them, at the longest deadlines.
const unwritten = time.Minute

// LeftLane is a lane whose last attempts may be missing.
type LeftLane struct {
	Lane
	Seq  uint64        // the first number that is not in the record
	From time.Duration // when that attempt was due
}

// ResumeHistory opens the history in a folder whose writer was killed, so that it goes on. What the kill left incomplete at the end of a
// file is cut off. An error is a history that cannot be read, or is damaged before its end.
func ResumeHistory(dir string) (*HistoryWriter, *Left, error) {
	w := &HistoryWriter{dir: dir}
	h := &History{dir: dir, files: os.DirFS(dir)}
	if err := h.readRun(); err != nil {
		return nil, nil, err
	}
	left := &Left{Run: h.Run}
	for i, name := range [...]string{EventsFile, AttemptsFile} {
		var err error
		if w.files[i], err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0); err != nil {
			return nil, nil, w.explain(errors.Join(err, w.closeFiles()))
		}
	}
	err := left.readEvents(w.files[0])
	if err == nil {
		w.attempts, err = left.readAttempts(w.files[1])
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading what a killed run left in %s: %w", dir, errors.Join(err, w.closeFiles()))
	}
	w.events = bufio.NewWriterSize(w.files[0], 64<<10)
	if h.Run.Record == RecordThinned {
		w.thinner = NewThinner(w.attempts)
	}
	return w, left, nil
}

// readEvents learns the lanes, and cuts off a last line that is incomplete.
func (left *Left) readEvents(f *os.File) error {
	r, end, n := bufio.NewReaderSize(f, 64<<10), int64(0), 0
	for {
		text, err := r.ReadBytes('\n')
		n++
		if errors.Is(err, io.EOF) {
			break // without its newline
		}
		if err != nil {
			return err
		}
		e, err := decodeLine(text)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			if rest, _ := r.Peek(1); len(rest) > 0 && !bytes.ContainsRune(text, 0) {
				return fmt.Errorf("%s:%d: %w", EventsFile, n, err)
			}
			break
		}
		end += int64(len(text))
		if err == nil { // other errors are of the analysis
			left.take(e)
		}
	}
	return cutOff(f, end)
}

func (left *Left) take(e Event) {
	left.Last = max(left.Last, e.At)
	switch body := e.Body.(type) {
	case Phase:
		left.Phase, left.Since = e.Object, e.At
	case Lane:
		left.Lanes = append(left.Lanes, LeftLane{Lane: body, From: e.At})
		left.LastLane, left.Names = max(left.LastLane, body.ID), append(left.Names, body.Name)
		left.Drawn += 1 + uint64(body.Rate*unwritten.Seconds())
	case LaneEnd:
		left.forget(body.Lane)
	case MissingRecord: // of an earlier kill
		left.forget(body.Lane)
	}
}

func (left *Left) forget(id uint16) {
	left.Lanes = slices.DeleteFunc(left.Lanes, func(l LeftLane) bool { return l.ID == id })
}

// cutOff ends a file at a length, where the next write goes.
func cutOff(f *os.File, length int64) error {
	if err := f.Truncate(length); err != nil {
		return err
	}
	_, err := f.Seek(length, io.SeekStart)
	return err
}

// readAttempts finds the first missing number of each lane, and returns a writer that goes on after the last whole block.
func (left *Left) readAttempts(f *os.File) (*AttemptWriter, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	parts := survey(f, info.Size())
	switch n := len(parts); {
	case n > 2, n == 2 && parts[1].intact:
		return nil, fmt.Errorf("%s is damaged before its end; %s", AttemptsFile, intactText(parts))
	case n == 0, !parts[0].intact:
		return NewAttemptWriter(f), cutOff(f, 0)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	numbers, r := map[uint16][]Span{}, NewAttemptReader(io.LimitReader(f, parts[0].end))
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", AttemptsFile, err)
		}
		if e.Bucket != nil {
			for _, s := range e.Bucket.Spans {
				numbers[e.Bucket.Lane] = joinSpan(numbers[e.Bucket.Lane], s)
			}
			continue
		}
		numbers[e.Lane] = joinSpan(numbers[e.Lane], Span{e.Seq, 1})
		left.Last = max(left.Last, e.Start+e.Total)
	}
	left.Last = max(left.Last, parts[0].to)
	for _, spans := range numbers {
		for _, s := range spans {
			left.Drawn += s.Count
		}
	}
	for i := range left.Lanes {
		left.Lanes[i].miss(numbers[left.Lanes[i].ID])
	}
	w := NewAttemptWriter(f)
	for id, s := range r.strings {
		w.strings[s] = uint64(id)
	}
	w.started = true
	return w, cutOff(f, parts[0].end)
}

// joinSpan adds numbers to ordered spans, and joins neighbours.
func joinSpan(spans []Span, s Span) []Span {
	i, _ := slices.BinarySearchFunc(spans, s.First, func(x Span, first uint64) int {
		if x.First < first {
			return -1
		}
		return 1
	})
	if i > 0 && spans[i-1].First+spans[i-1].Count == s.First {
		i--
		spans[i].Count += s.Count
	} else {
		spans = slices.Insert(spans, i, s)
	}
	if i+1 < len(spans) && spans[i].First+spans[i].Count == spans[i+1].First {
		spans[i].Count += spans[i+1].Count
		spans = slices.Delete(spans, i+1, i+2)
	}
	return spans
}

// miss sets the first number that is not in the spans, and when it was due.
func (l *LeftLane) miss(spans []Span) {
	if len(spans) > 0 && spans[0].First == 0 {
		l.Seq = spans[0].Count
	}
	l.From += time.Duration(math.Round(float64(l.Seq) * 1e9 / l.Rate))
}
