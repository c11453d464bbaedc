//go:build unix

package probes

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// A reply drop affects exactly the attempts that start within it; the retransmitted SYN makes them delayed by a second.
func TestReplyDropAffectsOnlyItsWindow(t *testing.T) {
	w := startWorker(t, context.Background())
	l := loopbackLane(listen(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) }), 100)
	begin := w.now(t) + 100*time.Millisecond
	from, until := begin+203*time.Millisecond, begin+403*time.Millisecond
	for _, err := range []error{w.Start(l, begin), w.DropReplies(l.ID, from, until), w.Stop(l.ID, begin+1200*time.Millisecond)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for len(w.seen) < 100 { // of 120: the others wait for their retransmission
		w.next(t)
	}
	attempts, err := w.finish(t)
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, a := range attempts[l.ID] {
		if tooLate(t, a) {
			continue
		}
		want := record.OK
		if a.Start >= from && a.Start < until {
			want = record.Delayed
			hit++
			if a.Connect < time.Second || a.Connect > 3*time.Second {
				t.Errorf("attempt %d had its reply dropped and connected after %v", a.Seq, a.Connect)
			}
		}
		if a.Class != want {
			t.Errorf("attempt %d at %v is %v (%s), want %v", a.Seq, a.Start-begin, a.Class, a.Detail, want)
		}
	}
	if hit < 10 {
		t.Errorf("%d attempts were affected, want about 20", hit)
	}
}

func TestReplyDropRejectsInvalidArguments(t *testing.T) {
	trial := newTrial()
	if err := trial.Start(testLane(100), 0); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"an unknown lane": trial.DropReplies(7, 0, time.Millisecond),
		"no time":         trial.DropReplies(1, time.Second, time.Second),
		"too long":        trial.DropReplies(1, 0, MaxReplyDrop+1),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
