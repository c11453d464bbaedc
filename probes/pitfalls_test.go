//go:build unix

package probes

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// Tests of pitfalls of other harnesses that concern the engine. docs/measuring.md has the whole list.

// An answer with an incomplete body is not an answer, even with a correct head.
func TestIncompleteBodyIsNotAnAnswer(t *testing.T) {
	t.Parallel()
	const half = "HTTP/1.1 200 OK\r\nX-Hitless-Pod: web-1\r\nContent-Length: 50\r\n\r\nweb-1"
	for name, abort := range map[string]bool{"closed": false, "reset": true} {
		for _, protocol := range []string{ProtocolTCPNew, ProtocolTCPLong, ProtocolHTTPReuse} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				t.Parallel()
				l := loopbackLane(listen(t, func(l net.Listener) {
					serveConnections(l, func(c *net.TCPConn, _, _ int) bool {
						_, _ = io.WriteString(c, half)
						if abort {
							_ = c.SetLinger(0)
						}
						return false
					})
				}), 5) // slow, so that the server has no unread request when it closes, which would make it a reset
				if l.Protocol = protocol; protocol == ProtocolTCPLong {
					l = longLane(l.Target, 5, 1)
				}
				want := record.Closed
				if abort {
					want = record.Reset
				}
				for _, a := range probe(t, l, 4) {
					if a.Class != want {
						t.Errorf("attempt %d is %v (%s), want %v", a.Seq, a.Class, a.Detail, want)
					}
				}
			})
		}
	}
}

// An empty or unspecified address means the local machine and must be rejected.
func TestLaneRejectsUnspecifiedTargets(t *testing.T) {
	for _, target := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:80"), netip.MustParseAddrPort("[::]:80"),
		netip.MustParseAddrPort("[::ffff:0.0.0.0]:80"), netip.MustParseAddrPort("203.0.113.10:0")} {
		l := testLane(10)
		l.Target, l.SourcePrefix = target, netip.Prefix{}
		if l.Validate() == nil {
			t.Errorf("a lane to %v was accepted", target)
		}
	}
}

// While events are unread, a passed deadline is not a timeout: the answer may be among them.
func TestUnreadAnswerIsNotATimeout(t *testing.T) {
	const deadline, read = 10 * time.Millisecond, 50 * time.Millisecond
	for name, unread := range map[string]bool{"an answer among the events": true, "no event is left": false} {
		trial := newTrial()
		trial.protocol.duration = after(deadline)
		trial.protocol.class = func(uint64) record.Class { return record.ConnectTimeout }
		trial.host.late = func(time.Duration) time.Duration { return time.Millisecond }
		trial.host.more = func(now time.Duration) bool { return unread && now < read }
		got := false
		trial.host.onEnd = func(now time.Duration) {
			if now >= read && !got {
				got = true
				for _, f := range trial.flights { // like dispatch with an answer
					if f.lane != nil {
						trial.finish(f, record.OK, "")
					}
				}
			}
		}
		if err := trial.Start(testLane(1), 0); err != nil {
			t.Fatal(err)
		}
		if err := trial.Stop(1, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		trial.commands = append(trial.commands, func(time.Duration) { trial.closed = true })
		if err := trial.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := record.ConnectTimeout
		if unread {
			want = record.OK
		}
		if len(trial.attempts) != 1 || trial.attempts[0].Class != want {
			t.Errorf("%s: %+v, want one attempt that is %v", name, trial.attempts, want)
		}
	}
}
