package guest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// A recorder that thins writes every attempt, by itself or in a bucket; one that does not writes each by itself.
func TestARecorderLosesNoAttempt(t *testing.T) {
	const n, rate = 20_000, 200
	for _, thin := range []bool{false, true} {
		region := make([]byte, 8<<20)
		if err := vm.PutPlan(region, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		r := newRecorder(vm.NewFrameWriter(region))
		if thin {
			r.thin()
		}
		r.Event(reports.Event{Kind: reports.EventLane, Object: "web", Attrs: map[string]string{"id": "1", "name": "web", "target": "203.0.113.10:80",
			"protocol": "tcp-new", "rate": strconv.Itoa(rate), "dialMs": "3000", "replyMs": "1000"}})
		for i := range n {
			at := time.Duration(i) * time.Second / rate
			r.Attempt(reports.Attempt{Lane: 1, Seq: uint64(i), Intended: at, Start: at, Connect: time.Millisecond, Total: 2 * time.Millisecond, Class: reports.OK})
		}
		r.close(nil)
		var record bytes.Buffer
		for frames := vm.NewFrameReader(region); ; {
			kind, data, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == vm.FrameAttempts {
				record.Write(data)
			}
			if kind == vm.FrameTrailer {
				break
			}
		}
		single, bucketed := 0, 0
		for reader := reports.NewAttemptReader(&record); ; {
			e, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Bucket == nil {
				single++
				continue
			}
			for _, g := range e.Bucket.Groups {
				bucketed += int(g.Count)
			}
		}
		if single+bucketed != n || (bucketed > n*9/10) != thin {
			t.Errorf("thinned %v: %d attempts by themselves and %d in buckets, of %d", thin, single, bucketed, n)
		}
	}
}
