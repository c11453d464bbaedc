package probes

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

const freshTestID = 9

// probeBoth makes the attempts of a lane, and returns them and those of the fresh connections beside it.
func probeBoth(t *testing.T, l Lane, attempts int) (own, fresh []record.Attempt) {
	t.Helper()
	l.Fresh = freshTestID
	got, err := probeFrom(monotonic(t), 10*time.Millisecond, l, attempts)
	if err != nil {
		t.Fatal(err)
	}
	by := numbered(t, got)
	return by[l.ID], by[freshTestID]
}

// failing serves connections. The first that is asked a second time ends in the given way; others are served after that
// only if the rest says so.
func failing(end func(c *net.TCPConn) bool, rest bool) func(net.Listener) {
	return func(l net.Listener) {
		var over atomic.Bool
		dialogue(l, func(c *net.TCPConn, _, request int) bool {
			if request > 0 && over.CompareAndSwap(false, true) {
				if !rest {
					l.Close()
				}
				return end(c)
			}
			return speak(c, answer("web-1", "node-1"))
		})
	}
}

// firstFailed is the first attempt that is not ok.
func firstFailed(t *testing.T, attempts []record.Attempt) record.Attempt {
	t.Helper()
	for _, a := range attempts {
		if a.Class != record.OK {
			return a
		}
	}
	t.Fatalf("all of %d attempts are ok", len(attempts))
	return record.Attempt{}
}

// What tells a lost connection from a lost way: at the moment at which the one fails, a new one is tried, and recorded once,
// on a lane of its own.
func TestAFreshConnectionIsTriedWhenOneFails(t *testing.T) {
	t.Parallel()
	reset := func(c *net.TCPConn) bool { _ = c.SetLinger(0); return false }
	closed := func(*net.TCPConn) bool { return false }
	for _, test := range []struct {
		name     string
		protocol string
		end      func(c *net.TCPConn) bool
		rest     bool
		class    record.Class // of the established connection
		fresh    record.Class
	}{
		{"reset, and the way is good", ProtocolTCPLong, reset, true, record.Reset, record.OK},
		{"closed, and the way is good", ProtocolTCPLong, closed, true, record.Closed, record.OK},
		{"reset, and nobody listens", ProtocolTCPLong, reset, false, record.Reset, record.Refused},
		{"a kept one is reset, and the way is good", ProtocolHTTPReuse, reset, true, record.Reset, record.OK},
		{"a kept one is reset, and nobody listens", ProtocolHTTPReuse, reset, false, record.Reset, record.Refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := loopbackLane(listen(t, failing(test.end, test.rest)), 5)
			if l.Protocol = test.protocol; test.protocol == ProtocolTCPLong {
				l = longLane(l.Target, 5, 1)
			}
			own, fresh := probeBoth(t, l, 5)
			dead := firstFailed(t, own)
			if dead.Class != test.class {
				t.Fatalf("the first that failed is %v (%s), want %v", dead.Class, dead.Detail, test.class)
			}
			if len(fresh) != 1 {
				t.Fatalf("%d fresh connections, want one: %+v", len(fresh), fresh)
			}
			f := fresh[0]
			if f.Class != test.fresh || f.Source == dead.Source {
				t.Errorf("the fresh connection is %v (%s) from %v, want %v from another port than %v", f.Class, f.Detail, f.Source, test.fresh, dead.Source)
			}
			if f.Intended != f.Start || f.Start < dead.Start {
				t.Errorf("the fresh connection is of %v, intended at %v; the failure was after %v", f.Start, f.Intended, dead.Start)
			}
		})
	}
}

// A connection that falls silent is looked after at the stall threshold, once, and again when it is given up.
func TestAFreshConnectionIsTriedWhenOneStalls(t *testing.T) {
	t.Parallel()
	silence := func(c *net.TCPConn) bool { _, _ = io.Copy(io.Discard, c); return false }
	l := longLane(listen(t, failing(silence, true)), 5, 1)
	l.StallAfter, l.ReplyDeadline = time.Second, 2500*time.Millisecond
	own, fresh := probeBoth(t, l, 6)
	silent := firstFailed(t, own)
	if silent.Class != record.ReplyTimeout {
		t.Fatalf("the first that failed is %v (%s), want reply-timeout", silent.Class, silent.Detail)
	}
	if len(fresh) != 2 || fresh[0].Class != record.OK || fresh[1].Class != record.OK {
		t.Fatalf("fresh connections %+v, want one at the stall and one at the end, both answered", fresh)
	}
	if first := fresh[0].Start - silent.Start; first < l.StallAfter || fresh[1].Start < silent.Start+l.ReplyDeadline || fresh[0].Start > fresh[1].Start {
		t.Errorf("fresh connections at %v and %v after the request, which was given up after %v", first, fresh[1].Start-silent.Start, silent.Total)
	}
}

// A connection that dies while nobody waits on it is looked after when it dies.
func TestAFreshConnectionIsTriedWhenAnIdleOneDies(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{ProtocolTCPLong, ProtocolHTTPReuse} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			target := listen(t, func(l net.Listener) {
				dialogue(l, func(c *net.TCPConn, connection, request int) bool {
					speak(c, answer("web-1", "node-1"))
					if connection == 0 && request == 1 {
						time.Sleep(20 * time.Millisecond) // it is idle then, and the next attempt is due in a second
						_ = c.SetLinger(0)
						return false
					}
					return true
				})
			})
			l := loopbackLane(target, 1)
			if l.Protocol = protocol; protocol == ProtocolTCPLong {
				l = longLane(target, 1, 1)
			}
			own, fresh := probeBoth(t, l, 3)
			if own[2].Class != record.Reset || len(fresh) != 1 || fresh[0].Class != record.OK {
				t.Fatalf("the attempt after the death is %v, fresh connections %+v; want reset, and one that is ok", own[2].Class, fresh)
			}
			if at := fresh[0].Start; at < own[1].Start || at > own[2].Start {
				t.Errorf("the fresh connection is of %v, not between %v and %v", at, own[1].Start, own[2].Start)
			}
		})
	}
}

// The red side: where no established connection fails there is no fresh one, and a proper end of an idle one is no failure.
func TestNoFreshConnectionWithoutAFailure(t *testing.T) {
	t.Parallel()
	good := func(l net.Listener) { converse(l, func(c *net.TCPConn, _ int) bool { return say(c) }) }
	ended := func(l net.Listener) { converse(l, func(c *net.TCPConn, _ int) bool { _ = say(c); return false }) }
	refusing := func(l net.Listener) { l.Close() }
	for name, test := range map[string]struct {
		protocol string
		server   func(net.Listener)
	}{
		"all is well":               {ProtocolTCPLong, good},
		"all is well over HTTP":     {ProtocolHTTPReuse, good},
		"idle ones are closed":      {ProtocolHTTPReuse, ended},
		"none was ever established": {ProtocolTCPLong, refusing},
		"nor over HTTP":             {ProtocolHTTPReuse, refusing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := loopbackLane(listen(t, test.server), 5)
			if l.Protocol = test.protocol; test.protocol == ProtocolTCPLong {
				l = longLane(l.Target, 5, 2)
			}
			if own, fresh := probeBoth(t, l, 5); len(own) != 5 || len(fresh) != 0 {
				t.Errorf("%d attempts and %d fresh connections, want 5 and none: %+v", len(own), len(fresh), fresh)
			}
		})
	}
}

func TestLanesThatKeepNothingHaveNoFreshLane(t *testing.T) {
	for _, protocol := range Protocols() {
		l := loopbackLane(listen(t, func(l net.Listener) { l.Close() }), 10)
		l.Protocol, l.Fresh = protocol, freshTestID
		if err := l.Validate(); (err == nil) != l.KeepsConnections() {
			t.Errorf("%s with a fresh lane: %v", protocol, err)
		}
		if l.Fresh = l.ID; l.Validate() == nil {
			t.Errorf("%s: the lane's own number was accepted for its fresh lane", protocol)
		}
	}
}
