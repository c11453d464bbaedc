package record

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// A writer that is killed has the attempts of a lane that ended some seconds before, though no later attempt of that lane tells that their
// neighbours were good. The last attempts of a lane that goes on wait.
func TestAKilledThinnerHasTheEndedLanes(t *testing.T) {
	const ended, killed = 20 * time.Second, 30 * time.Second
	for _, tell := range []bool{true, false} {
		var out bytes.Buffer
		w := NewAttemptWriter(&out)
		thinner := NewThinner(w)
		for id := uint16(1); id <= 2; id++ {
			thinner.Event(Event{Body: Lane{ID: id, Protocol: ProtocolDial, Rate: 10, Dial: 3 * time.Second}})
		}
		want := map[uint16]int{}
		for seq := range uint64(killed / (100 * time.Millisecond)) {
			at := time.Duration(seq) * 100 * time.Millisecond
			if at == ended && tell {
				thinner.Event(Event{At: at, Body: LaneEnd{Lane: 1}})
			}
			for id := uint16(1); id <= 2; id++ {
				if id == 1 && at >= ended {
					continue
				}
				want[id]++
				if err := thinner.Attempt(Attempt{Lane: id, Seq: seq, Intended: at, Start: at, Total: time.Millisecond, Class: OK}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Flush(); err != nil { // as a writer does each second; it is not closed
			t.Fatal(err)
		}
		got := countEntries(t, &out)
		if whole := got[1] == want[1]; whole != tell {
			t.Errorf("told of the end: %t: %d of %d attempts of the lane that ended are written", tell, got[1], want[1])
		}
		if got[2] == 0 || got[2] >= want[2] {
			t.Errorf("%d of %d attempts of the lane that goes on are written; want all but the last seconds", got[2], want[2])
		}
	}
}

// countEntries counts the attempts of each lane, those in buckets too.
func countEntries(t *testing.T, r io.Reader) map[uint16]int {
	t.Helper()
	got := map[uint16]int{}
	for reader := NewAttemptReader(r); ; {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Bucket != nil {
			for _, s := range e.Bucket.Spans {
				got[e.Bucket.Lane] += int(s.Count)
			}
			continue
		}
		got[e.Attempt.Lane]++
	}
}
