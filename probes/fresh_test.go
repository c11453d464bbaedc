//go:build unix

package probes

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

const freshTestID = 9

// probeBoth runs a lane and returns its attempts and those of its fresh lane.
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

// failing serves connections. The first one with a second request ends by end. Later connections are served only with
// rest.
func failing(end func(c *net.TCPConn) bool, rest bool) func(net.Listener) {
	return func(l net.Listener) {
		var over atomic.Bool
		serveConnections(l, func(c *net.TCPConn, _, request int) bool {
			if request > 0 && over.CompareAndSwap(false, true) {
				if !rest {
					l.Close()
				}
				return end(c)
			}
			return writeText(c, answer("web-1", "node-1"))
		})
	}
}

// firstFailed returns the first attempt that is not ok.
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

// A failure of an established connection makes one attempt on a new one, on the fresh lane.
func TestFreshConnectionAfterFailure(t *testing.T) {
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
		{"reset, path works", ProtocolTCPLong, reset, true, record.Reset, record.OK},
		{"closed, path works", ProtocolTCPLong, closed, true, record.Closed, record.OK},
		{"reset, no listener", ProtocolTCPLong, reset, false, record.Reset, record.Refused},
		{"keep-alive connection reset, path works", ProtocolHTTPReuse, reset, true, record.Reset, record.OK},
		{"keep-alive connection reset, no listener", ProtocolHTTPReuse, reset, false, record.Reset, record.Refused},
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
				t.Fatalf("the first failed attempt is %v (%s), want %v", dead.Class, dead.Detail, test.class)
			}
			if len(fresh) != 1 {
				t.Fatalf("%d fresh connections, want one: %+v", len(fresh), fresh)
			}
			f := fresh[0]
			if f.Class != test.fresh || f.Source == dead.Source {
				t.Errorf("the fresh connection is %v (%s) from %v, want %v from another port than %v", f.Class, f.Detail, f.Source, test.fresh, dead.Source)
			}
			if f.Intended != f.Start || f.Start < dead.Start {
				t.Errorf("the fresh connection started at %v, scheduled at %v; the failure was after %v", f.Start, f.Intended, dead.Start)
			}
		})
	}
}

// A stalled connection makes a fresh attempt at the stall threshold and another one at the reply deadline.
func TestFreshConnectionAfterStall(t *testing.T) {
	t.Parallel()
	silence := func(c *net.TCPConn) bool { _, _ = io.Copy(io.Discard, c); return false }
	l := longLane(listen(t, failing(silence, true)), 5, 1)
	l.StallAfter, l.ReplyDeadline = time.Second, 2500*time.Millisecond
	own, fresh := probeBoth(t, l, 6)
	silent := firstFailed(t, own)
	if silent.Class != record.ReplyTimeout {
		t.Fatalf("the first failed attempt is %v (%s), want reply-timeout", silent.Class, silent.Detail)
	}
	if len(fresh) != 2 || fresh[0].Class != record.OK || fresh[1].Class != record.OK {
		t.Fatalf("fresh connections %+v, want one at the stall and one at the deadline, both ok", fresh)
	}
	if first := fresh[0].Start - silent.Start; first < l.StallAfter || fresh[1].Start < silent.Start+l.ReplyDeadline || fresh[0].Start > fresh[1].Start {
		t.Errorf("fresh connections at %v and %v after the request, whose attempt ended after %v", first, fresh[1].Start-silent.Start, silent.Total)
	}
}

// A failure of an idle connection makes a fresh attempt at once.
func TestFreshConnectionAfterIdleFailure(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{ProtocolTCPLong, ProtocolHTTPReuse} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			target := listen(t, func(l net.Listener) {
				serveConnections(l, func(c *net.TCPConn, connection, request int) bool {
					writeText(c, answer("web-1", "node-1"))
					if connection == 0 && request == 1 {
						time.Sleep(20 * time.Millisecond) // the connection is idle then; the next attempt is due in a second
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
				t.Fatalf("the attempt after the failure is %v, fresh connections %+v; want reset, and one that is ok", own[2].Class, fresh)
			}
			if at := fresh[0].Start; at < own[1].Start || at > own[2].Start {
				t.Errorf("the fresh connection started at %v, not between %v and %v", at, own[1].Start, own[2].Start)
			}
		})
	}
}

// Without a failure of an established connection there is no fresh attempt, and an orderly end of an idle one is not a
// failure.
func TestNoFreshConnectionWithoutAFailure(t *testing.T) {
	t.Parallel()
	good := func(l net.Listener) { serveKeepAlive(l, func(c *net.TCPConn, _ int) bool { return writeAnswer(c) }) }
	ended := func(l net.Listener) {
		serveKeepAlive(l, func(c *net.TCPConn, _ int) bool { _ = writeAnswer(c); return false })
	}
	for name, test := range map[string]struct {
		protocol string
		server   func(net.Listener)
	}{
		"no failure":             {ProtocolTCPLong, good},
		"no failure over HTTP":   {ProtocolHTTPReuse, good},
		"idle connections close": {ProtocolHTTPReuse, ended},
		"none is established":    {ProtocolTCPLong, nil},
		"none over HTTP":         {ProtocolHTTPReuse, nil},
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

func TestFreshLaneNeedsKeptConnections(t *testing.T) {
	for _, protocol := range Protocols() {
		l := loopbackLane(testfiles.Refusing(t), 10)
		l.Protocol, l.Fresh = protocol, freshTestID
		if err := l.Validate(); (err == nil) != l.KeepsConnections() {
			t.Errorf("%s with a fresh lane: %v", protocol, err)
		}
		if l.Fresh = l.ID; l.Validate() == nil {
			t.Errorf("%s: the lane's own id was accepted for its fresh lane", protocol)
		}
	}
}
