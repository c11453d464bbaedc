//go:build unix && (!linux || portable)

package probes

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A socket that is closed has no events any more, also none that was queued before. One that stays open has its event.
func TestAClosedSocketHasNoEvents(t *testing.T) {
	for _, closed := range []bool{true, false} {
		c, err := newClock(0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newPoller(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pair[1]) })
		if err := unix.SetNonblock(pair[0], true); err != nil {
			t.Fatal(err)
		}
		if errno := p.watchInput(pair[0], 1, 0); errno != 0 {
			t.Fatal(errno)
		}
		if _, err := unix.Write(pair[1], []byte("answer")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.changed: // an event is queued
		case <-time.After(10 * time.Second):
			t.Fatal("no event within 10 s")
		}
		if closed {
			p.forget(pair[0])
		}
		events, _, err := p.wait(p.now())
		if err != nil || (len(events) == 0) != closed {
			t.Errorf("closed %t: events %+v, error %v", closed, events, err)
		}
	}
}
