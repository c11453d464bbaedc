package record

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// killedHistory is a history in a folder whose writer was killed, with attempts 0 to n-1 of lane 1 at 10 per second.
func killedHistory(t *testing.T, n int, thinned bool) string {
	t.Helper()
	dir, run := t.TempDir(), Run{Scenario: "watch"}
	if thinned {
		run.Record = RecordThinned
	}
	w, err := NewHistoryWriter(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	for id, name := range map[uint16]string{1: "a", 2: "b"} {
		w.Event(Event{At: time.Second, Object: name, Body: Lane{ID: id, Name: name, Rate: 10}})
	}
	w.Event(Event{At: 2 * time.Second, Object: "scenario", Body: Phase{}})
	w.Event(Event{At: 3 * time.Second, Object: "b", Body: LaneEnd{Lane: 2}})
	for seq := range n {
		w.Attempt(attemptAt(1, seq))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func attemptAt(lane uint16, seq int) Attempt {
	at := time.Second + time.Duration(seq)*100*time.Millisecond
	return Attempt{Lane: lane, Seq: uint64(seq), Class: OK, Intended: at, Start: at, Connect: 1, Total: time.Millisecond, Backend: fmt.Sprint("web-", seq%3)}
}

// A history goes on after its writer was killed, also within a line and a block: what was whole is kept, once, and what is missing is
// known by its number and its time.
func TestResumedHistoryHasAllThatWasRecorded(t *testing.T) {
	for _, thinned := range []bool{false, true} {
		for name, end := range map[string]string{"": "whole", EventsFile: `{"atNs":5,"kind":"la`, AttemptsFile: blockMark + "half a block"} {
			t.Run(fmt.Sprint(name, thinned), func(t *testing.T) {
				dir := killedHistory(t, 300, thinned)
				if name != "" {
					appendTo(t, filepath.Join(dir, name), end)
				}
				w, left, err := ResumeHistory(dir)
				if err != nil {
					t.Fatal(err)
				}
				if len(left.Lanes) != 1 || left.Lanes[0].Name != "a" || left.LastLane != 2 || left.Phase != "scenario" || len(left.Names) != 2 {
					t.Fatalf("%+v", left)
				}
				lane := left.Lanes[0]
				if !thinned && lane.Seq != 300 || thinned && (lane.Seq < 200 || lane.Seq >= 300) || lane.From != attemptAt(1, int(lane.Seq)).Intended {
					t.Errorf("number %d of %v is the first that is missing", lane.Seq, lane.From)
				}
				if left.Drawn < 300 {
					t.Errorf("%d attempts were made, and the next worker skips %d five-tuples", 300, left.Drawn)
				}
				if left.Last < lane.From-100*time.Millisecond {
					t.Errorf("the record ends at %v, and attempt %d was due at %v", left.Last, lane.Seq, lane.From)
				}
				w.Event(Event{At: 40 * time.Second, Object: "c", Body: Lane{ID: 3, Name: "c", Rate: 10}})
				w.Attempt(attemptAt(3, 0))
				w.Attempt(attemptAt(3, 1))
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				checkWhole(t, dir, int(lane.Seq))
			})
		}
	}
}

// checkWhole reads a resumed history: each of the first n numbers of lane 1 is in it once, and all of lane 3.
func checkWhole(t *testing.T, dir string, n int) {
	t.Helper()
	h, err := OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	events, found := 0, map[uint16]map[uint64]int{1: {}, 3: {}}
	for _, err := range h.Events() {
		if err != nil {
			t.Fatal(err)
		}
		events++
	}
	for e, err := range h.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Bucket == nil {
			found[e.Lane][e.Seq]++
			if e.Backend != attemptAt(e.Lane, int(e.Seq)).Backend {
				t.Errorf("attempt %d of lane %d has backend %q", e.Seq, e.Lane, e.Backend)
			}
			continue
		}
		for _, s := range e.Bucket.Spans {
			for seq := s.First; seq < s.First+s.Count; seq++ {
				found[e.Bucket.Lane][seq]++
			}
		}
	}
	for seq := range n {
		if found[1][uint64(seq)] != 1 {
			t.Errorf("attempt %d is recorded %d times", seq, found[1][uint64(seq)])
		}
	}
	if events != 5 || len(found[3]) != 2 {
		t.Errorf("%d events, and the attempts %v after the kill", events, found[3])
	}
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// The red twin: a record that is damaged before its end is no end of a killed writer, and is left as it is.
func TestDamagedHistoryIsNotResumed(t *testing.T) {
	for name, damage := range map[string]func(data []byte) []byte{
		AttemptsFile: func(data []byte) []byte {
			whole := append([]byte{}, data...)
			data[len(AttemptsMagic)+40] ^= 1
			return append(data, whole[len(AttemptsMagic):]...)
		},
		EventsFile: func(data []byte) []byte { data[0] = 'x'; return data },
		RunFile:    func([]byte) []byte { return []byte("{") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := killedHistory(t, 50, false)
			file := filepath.Join(dir, name)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			data = damage(data)
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ResumeHistory(dir); err == nil {
				t.Error("it was resumed")
			}
			if after, err := os.ReadFile(file); err != nil || string(after) != string(data) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
}
