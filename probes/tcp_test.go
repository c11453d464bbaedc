//go:build unix

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// probe runs a lane in the test's network namespace and returns its attempts by number, at least so many.
func probe(t *testing.T, l Lane, attempts int) []record.Attempt {
	t.Helper()
	got, err := probeFrom(monotonic(t), 10*time.Millisecond, l, attempts)
	if err != nil {
		t.Fatal(err)
	}
	own := numbered(t, got)[l.ID]
	if len(own) < attempts {
		t.Fatalf("%d attempts of %d", len(own), attempts)
	}
	return own
}

// probeFrom makes the attempts of a lane that starts at the offset from, in the caller's network namespace.
func probeFrom(base int64, from time.Duration, l Lane, attempts int) (got []record.Attempt, err error) {
	// The seed changes, so that no five-tuple is in TIME_WAIT from the last test.
	engine, err := New(Config{Base: base, Seed: base, Record: func(a record.Attempt) { got = append(got, a) }})
	if err != nil {
		return nil, err
	}
	err = runLane(engine, from, l, attempts)
	return got, err
}

// runLane runs the engine for one lane.
func runLane(engine *Engine, from time.Duration, l Lane, attempts int) error {
	engine.lateLimit = time.Minute // the test is about classes, even on a machine with stalls
	end := from + (schedule{rate: l.Rate}).at(uint64(attempts))
	if err := errors.Join(engine.Start(l, from), engine.Stop(l.ID, end)); err != nil {
		return err
	}
	timer := time.AfterFunc(end-engine.Now(), engine.Close)
	defer timer.Stop()
	return engine.Run(context.Background())
}

// TestOutcomesOnLoopback produces the classes that need no other host. The others are in classes_netns_test.go.
func TestOutcomesOnLoopback(t *testing.T) {
	send := func(text string) func(net.Listener) { return func(l net.Listener) { serve(l, text) } }
	do := func(then func(c *net.TCPConn)) func(net.Listener) { return func(l net.Listener) { serveOnce(l, then) } }
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0) }
	for _, test := range []struct {
		name   string
		server func(net.Listener)
		change func(*Lane)
		class  record.Class
		detail string
	}{
		{name: "an answer", server: send(answer("web-1", "node-1")), class: record.OK},
		{name: "an answer, then rst", server: send(answer("web-1", "node-1")), change: func(l *Lane) { l.Close = CloseRST }, class: record.OK},
		{name: "an answer in pieces", server: do(func(c *net.TCPConn) {
			_ = c.SetNoDelay(true)
			for _, b := range []byte(answer("web-1", "node-1")) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, c)
		}), class: record.OK},
		{name: "an answer up to the end", server: do(func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nweb-1\n") }), class: record.OK},
		{name: "an answer and a reset", server: do(func(c *net.TCPConn) {
			_, _ = io.WriteString(c, answer("web-1", "node-1"))
			_ = c.SetLinger(0)
		}), class: record.OK},
		{name: "later than the threshold", server: do(func(c *net.TCPConn) {
			time.Sleep(50 * time.Millisecond) // the tested answer time
			_, _ = io.WriteString(c, answer("web-1", "node-1"))
		}), change: func(l *Lane) { l.DelayedAfter = 40 * time.Millisecond }, class: record.Delayed, detail: DetailSlow},
		{name: "another pod", server: send(answer("other-1", "node-1")), class: record.Misrouted, detail: DetailBackend},
		{name: "no pod", server: send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), class: record.WrongAnswer, detail: DetailNoIdentity},
		{name: "an error page", server: send("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), class: record.WrongAnswer, detail: "status 503"},
		{name: "garbage", server: send("\x16\x03\x01"), class: record.WrongAnswer, detail: "not HTTP"},
		{name: "closed at once", server: do(func(*net.TCPConn) {}), class: record.Closed, detail: DetailEnd},
		{name: "closed within the answer", server: do(func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nweb")
		}), class: record.Closed, detail: DetailEnd},
		{name: "reset at once", server: do(reset), class: record.Reset, detail: "ECONNRESET"},
		{name: "reset within the answer", server: do(func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nweb")
			_ = c.SetLinger(0)
		}), class: record.Reset, detail: "ECONNRESET"},
		{name: "reset before the request", server: func(l net.Listener) {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				reset(c.(*net.TCPConn))
				c.Close()
			}
		}, class: record.Reset, detail: "ECONNRESET"},
		{name: "silence", server: do(func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }),
			change: func(l *Lane) { l.ReplyDeadline = 50 * time.Millisecond }, class: record.ReplyTimeout},
		{name: "silence after the handshake", server: do(func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }),
			change: func(l *Lane) { l.Protocol, l.Backends = ProtocolTCPDial, nil }, class: record.OK},
		{name: "no listener for a handshake", server: nil,
			change: func(l *Lane) { l.Protocol, l.Backends = ProtocolTCPDial, nil }, class: record.Refused},
		{name: "no listener", server: nil, class: record.Refused},
		// A reserved range (RFC 1112): some machines use the documentation ranges.
		{name: "an address of another machine", server: send(answer("web-1", "node-1")),
			change: func(l *Lane) { l.SourcePrefix = netip.MustParsePrefix("240.0.0.0/24") }, class: record.Probe, detail: "EADDRNOTAVAIL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := loopbackLane(listen(t, test.server), 200)
			if test.change != nil {
				test.change(&l)
			}
			for _, a := range probe(t, l, 10) {
				if a.Class != test.class || a.Detail != test.detail {
					t.Errorf("attempt %d is %v (%s), want %v (%s)", a.Seq, a.Class, a.Detail, test.class, test.detail)
				}
				if never := a.Class == record.Probe || a.Class == record.Refused; never != (a.Connect == 0) || a.Total < a.Connect {
					t.Errorf("attempt %d is %v with a connect time of %v of %v", a.Seq, a.Class, a.Connect, a.Total)
				}
				if a.Class != record.Probe && (a.Source.Port() == 0 || !a.Source.Addr().IsLoopback()) {
					t.Errorf("attempt %d has source %s", a.Seq, a.Source)
				}
			}
		})
	}
}

// A lane without a prefix skips ports in use: no attempt fails and no port is used twice.
func TestPortsInUseAreSkipped(t *testing.T) {
	const attempts = 20
	l := loopbackLane(listen(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) }), 200)
	walk := newWalk(l.sourceRange().prefix, monotonic(t))
	taken := map[uint16]bool{}
	for ahead := *walk; len(taken) < 10; ahead.next(0) { // every second port
		port := ahead.next(0).Port()
		if held, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil { // otherwise it is in use already
			defer held.Close()
		}
		taken[port] = true
	}
	var got []record.Attempt
	engine, err := New(Config{Base: monotonic(t), Record: func(a record.Attempt) { got = append(got, a) }})
	if err != nil {
		t.Fatal(err)
	}
	engine.walks[l.sourceRange()] = walk
	if err := runLane(engine, 0, l, attempts); err != nil || len(got) != attempts {
		t.Fatalf("%d attempts, want %d (%v)", len(got), attempts, err)
	}
	seen := map[uint16]bool{}
	for _, a := range got {
		if port := a.Source.Port(); a.Class != record.OK || a.TupleAge != 0 || taken[port] || seen[port] {
			t.Errorf("attempt %d from port %d is %v (%s)", a.Seq, port, a.Class, a.Detail)
		}
		seen[a.Source.Port()] = true
	}
}

// Without descriptors an attempt has class probe.
func TestNoDescriptorsHasClassProbe(t *testing.T) {
	target := listen(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	s := newSockets(nil)
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, errno := s.open(unix.SOCK_STREAM, target, netip.AddrPort{}, false)
	if class, detail := classifyDial(errno, icmp{}); class != record.Probe || detail != "EMFILE" {
		t.Errorf("%v (%s), want probe (EMFILE)", class, detail)
	}
}
