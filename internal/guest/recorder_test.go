//go:build linux

package guest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// A recorder that thins writes every attempt, by itself or in a bucket; one that does not writes each by itself.
func TestARecorderLosesNoAttempt(t *testing.T) {
	const n, rate = 20_000, 200
	for _, thin := range []bool{false, true} {
		region := make([]byte, 8<<20)
		if err := vm.PutPlan(region, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		r := newRecorder(vm.NewFrameWriter(region), math.MaxInt64)
		if thin {
			r.thin()
		}
		r.Event(record.Event{Object: "web", Body: record.Lane{ID: 1, Name: "web", Target: "203.0.113.10:80", Protocol: "tcp-new",
			Rate: rate, Dial: 3 * time.Second, Reply: time.Second}})
		for i := range n {
			at := time.Duration(i) * time.Second / rate
			r.Attempt(record.Attempt{Lane: 1, Seq: uint64(i), Intended: at, Start: at, Connect: time.Millisecond, Total: 2 * time.Millisecond, Class: record.OK})
		}
		r.close(nil)
		var recorder bytes.Buffer
		for frames := vm.NewFrameReader(region); ; {
			kind, data, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == vm.FrameAttempts {
				recorder.Write(data)
			}
			if kind == vm.FrameTrailer {
				break
			}
		}
		single, bucketed := 0, 0
		for reader := record.NewAttemptReader(&recorder); ; {
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

// recordUntil is what a recorder writes of the same minute when it stops at a time: the bytes of each kind of frame.
func recordUntil(t *testing.T, stopAt time.Duration, thin bool) (frames map[vm.FrameKind]string, r *recorder) {
	t.Helper()
	region := make([]byte, 8<<20)
	if err := vm.PutPlan(region, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	r = newRecorder(vm.NewFrameWriter(region), stopAt)
	if thin {
		r.thin()
	}
	r.Event(record.Event{Object: "web", Body: record.Lane{ID: 1, Name: "web", Target: "203.0.113.10:80", Protocol: "tcp-new",
		Rate: 100, Dial: 3 * time.Second, Reply: time.Second}})
	for i := range 6000 {
		at := time.Duration(i) * 10 * time.Millisecond
		r.Attempt(record.Attempt{Lane: 1, Seq: uint64(i), Intended: at, Start: at, Connect: time.Millisecond, Total: 2 * time.Millisecond, Class: record.OK})
		if i%100 == 99 {
			r.Event(record.Event{At: at + 3*time.Millisecond, Object: "step", Text: "step " + strconv.Itoa(i), Body: record.Step{}})
			r.Journal("+" + at.String() + " proxy stop node-1\n")
		}
	}
	r.close(nil)
	frames = map[vm.FrameKind]string{}
	for reader := vm.NewFrameReader(region); ; {
		kind, data, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return frames, r
		}
		if err != nil {
			t.Fatal(err)
		}
		frames[kind] += string(data)
	}
}

// attemptsIn are the attempts, each by itself, in frames of them.
func attemptsIn(t *testing.T, frames string) (all []record.Attempt) {
	t.Helper()
	for reader := record.NewAttemptReader(strings.NewReader(frames)); ; {
		a, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, a)
	}
}

// What a run recorded when it stopped is how the record without the stop begins, and has all that was until then.
func TestARecordThatStopsIsTheBeginningOfTheWhole(t *testing.T) {
	for _, thin := range []bool{false, true} {
		whole, unstopped := recordUntil(t, math.MaxInt64, thin)
		if unstopped.hasStopped() {
			t.Fatal("a run that is not to stop has stopped")
		}
		for _, at := range []time.Duration{0, time.Nanosecond, 995 * time.Millisecond, 30 * time.Second, 59990 * time.Millisecond} {
			part, r := recordUntil(t, at, thin)
			if !r.hasStopped() {
				t.Errorf("nothing stopped at %s", at)
			}
			select {
			case <-r.stopped:
			default:
				t.Errorf("nobody is told of the stop at %s", at)
			}
			for _, kind := range []vm.FrameKind{vm.FrameEvent, vm.FrameTimeline} {
				if !strings.HasPrefix(whole[kind], part[kind]) {
					t.Errorf("stopped at %s, the frames of kind %d are not how the whole begins", at, kind)
				}
			}
			want := int((at - 3*time.Millisecond + time.Second - 990*time.Millisecond) / time.Second)
			steps, events := strings.Count(part[vm.FrameTimeline], "\n"), strings.Count(part[vm.FrameEvent], `"step `)
			if at > time.Second && (steps != want || events != want) {
				t.Errorf("stopped at %s, %d steps are recorded and %d events of them, want %d", at, steps, events, want)
			}
			if thin {
				continue
			}
			have, all := attemptsIn(t, part[vm.FrameAttempts]), attemptsIn(t, whole[vm.FrameAttempts])
			if !slices.Equal(all[:min(len(all), len(have))], have) {
				t.Errorf("stopped at %s, the attempts are not how the whole begins", at)
			}
			if want := int(at / (10 * time.Millisecond)); at > time.Second && len(have) != want {
				t.Errorf("stopped at %s, %d attempts are recorded, want %d", at, len(have), want)
			}
		}
	}
}
