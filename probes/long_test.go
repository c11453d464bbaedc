//go:build unix

package probes

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// serveConnections serves connections that stay open: respond is called for each request with the numbers of the
// connection and of the request on it, both from 0. It returns false to close the connection.
func serveConnections(listener net.Listener, respond func(c *net.TCPConn, connection, request int) bool) {
	for number := 0; ; number++ {
		accepted, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			c := accepted.(*net.TCPConn)
			defer c.Close()
			r := bufio.NewReader(c)
			for k := 0; ; k++ {
				if _, err := http.ReadRequest(r); err != nil || !respond(c, number, k) {
					return
				}
			}
		}()
	}
}

func writeText(c *net.TCPConn, text string) bool {
	_, err := io.WriteString(c, text)
	return err == nil
}

func longLane(target netip.AddrPort, rate float64, connections int) Lane {
	l := loopbackLane(target, rate).WithDefaults()
	l.Protocol, l.Connections, l.StallAfter = ProtocolTCPLong, connections, l.ReplyDeadline
	return l
}

func TestLongConnectionsStayOpen(t *testing.T) {
	target := listen(t, func(l net.Listener) {
		serveConnections(l, func(c *net.TCPConn, _, _ int) bool { return writeText(c, answer("web-1", "node-1")) })
	})
	sources := map[netip.AddrPort]bool{}
	var first [4]record.Attempt
	for _, a := range probe(t, longLane(target, 200, 4), 60) {
		if a.Class != record.OK || a.Backend != "web-1" || a.Node != "node-1" {
			t.Errorf("attempt %d is %v (%s) from %s on %s", a.Seq, a.Class, a.Detail, a.Backend, a.Node)
		}
		sources[a.Source] = true
		opener := &first[a.Seq%4]
		if a.Seq < 4 {
			*opener = a
		}
		if a.Source != opener.Source || (a.Connect > 0) != (a.Seq < 4) || (a.Seq >= 4 && a.Start-a.TupleAge != opener.Start) {
			t.Errorf("attempt %d from %s, connect %v, age %v; its connection began with %+v", a.Seq, a.Source, a.Connect, a.TupleAge, opener)
		}
	}
	if len(sources) != 4 {
		t.Errorf("%d connections, want 4", len(sources))
	}
}

// TestLongOutcomes fails one connection at its third attempt, in every way, beside another connection that works.
func TestLongOutcomes(t *testing.T) {
	good := answer("web-1", "node-1")
	base, from := monotonic(t), 50*time.Millisecond
	var waiting sync.WaitGroup
	for _, test := range []struct {
		name   string
		third  func(c *net.TCPConn) bool
		change func(*Lane)
		class  record.Class
		detail string
		same   bool // the connection stays open
	}{
		{name: "reset", third: func(c *net.TCPConn) bool { _ = c.SetLinger(0); return false }, class: record.Reset, detail: "ECONNRESET"},
		{name: "closed", third: func(*net.TCPConn) bool { return false }, class: record.Closed, detail: DetailEnd},
		{name: "silence", third: func(*net.TCPConn) bool { return true },
			change: func(l *Lane) { l.ReplyDeadline = 250 * time.Millisecond }, class: record.ReplyTimeout},
		{name: "late", third: func(c *net.TCPConn) bool {
			time.Sleep(250 * time.Millisecond) // the tested answer time
			return writeText(c, good)
		}, change: func(l *Lane) { l.StallAfter = 200 * time.Millisecond }, class: record.Stalled, detail: DetailSlow, same: true},
		{name: "another pod", third: func(c *net.TCPConn) bool { return writeText(c, answer("other-1", "node-1")) },
			class: record.Misrouted, detail: DetailBackend, same: true},
		{name: "an error page", third: func(c *net.TCPConn) bool { return writeText(c, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n") },
			class: record.WrongAnswer, detail: "status 503"},
		{name: "no length", third: func(c *net.TCPConn) bool { return writeText(c, "HTTP/1.1 200 OK\r\n\r\nweb-1") },
			class: record.WrongAnswer, detail: "answer without a length"},
		{name: "an answer in pieces", third: func(c *net.TCPConn) bool {
			_ = c.SetNoDelay(true)
			for _, b := range []byte(good) {
				if _, err := c.Write([]byte{b}); err != nil {
					return false
				}
			}
			return true
		}, class: record.OK, same: true},
		{name: "a reset after the answer", third: func(c *net.TCPConn) bool {
			go func() { // once the answer was read
				time.Sleep(20 * time.Millisecond)
				_ = c.SetLinger(0)
				c.Close()
			}()
			return writeText(c, good)
		}, class: record.OK},
		{name: "an unexpected answer", third: func(c *net.TCPConn) bool {
			go func() {
				time.Sleep(20 * time.Millisecond)
				writeText(c, good)
			}()
			return writeText(c, good)
		}, class: record.OK},
	} {
		target := listen(t, func(l net.Listener) {
			serveConnections(l, func(c *net.TCPConn, connection, request int) bool {
				if connection == 0 && request == 2 {
					return test.third(c)
				}
				return writeText(c, good)
			})
		})
		waiting.Go(func() {
			l := longLane(target, 6, 2) // a request every 333 ms per connection is slow enough for a busy machine
			if test.change != nil {
				test.change(&l)
				l.StallAfter = min(l.StallAfter, l.ReplyDeadline)
			}
			recorded, err := probeFrom(base, from, l, 9)
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
				return
			}
			got := make([]record.Attempt, 9)
			for _, a := range recorded {
				got[a.Seq] = a
				if other := a.Seq%2 == 1 || a.Seq < 4; other && a.Class != record.OK {
					t.Errorf("%s: attempt %d, which is not the third of connection 0, is %v (%s)", test.name, a.Seq, a.Class, a.Detail)
				}
			}
			if a := got[4]; a.Class != test.class || a.Detail != test.detail {
				t.Errorf("%s: the third attempt is %v (%s), want %v (%s)", test.name, a.Class, a.Detail, test.class, test.detail)
			}
			if same := got[4].Source == got[8].Source; same != test.same {
				t.Errorf("%s: the connection from %s, then from %s", test.name, got[4].Source, got[8].Source)
			}
			unreported := test.class == record.OK && !test.same
			if a := got[6]; unreported != (a.Class != record.OK) || unreported != (!test.same && a.Source == got[4].Source) {
				t.Errorf("%s: after the third attempt comes %v (%s) from %s, before it from %s", test.name, a.Class, a.Detail, a.Source, got[4].Source)
			}
		})
	}
	waiting.Wait()
}

func TestLongWithoutListener(t *testing.T) {
	for _, a := range probe(t, longLane(testfiles.Refusing(t), 200, 3), 20) {
		if a.Class != record.Refused || a.Source.Port() == 0 {
			t.Errorf("attempt %d is %v (%s) from %s", a.Seq, a.Class, a.Detail, a.Source)
		}
	}
}

// A failure after the last scheduled attempt is recorded by an additional attempt.
func TestLongRecordsFailureAtTheEnd(t *testing.T) {
	requests := make(chan *net.TCPConn, 8)
	target := listen(t, func(l net.Listener) {
		serveConnections(l, func(c *net.TCPConn, _, _ int) bool {
			requests <- c
			return writeText(c, answer("web-1", "node-1"))
		})
	})
	go func() { // closes the first of two connections, in the last interval of the lane
		c := <-requests
		<-requests
		time.Sleep(20 * time.Millisecond)
		_ = c.SetLinger(0)
		c.Close()
	}()
	got := probe(t, longLane(target, 2, 2), 2)
	if len(got) != 3 {
		t.Fatalf("%d attempts, want two scheduled and one additional: %v", len(got), got)
	}
	if a := got[2]; a.Class != record.Reset || a.Source != got[0].Source || a.Intended < got[1].Intended {
		t.Errorf("the last attempt is %+v", a)
	}
}

// For any behaviour of the server, no connection is replaced without a failed attempt, every attempt is recorded once,
// and each ok attempt has an answer of the server.
func TestLongRecordsEveryReconnect(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			connections, answers := 0, 0
			target := listen(t, func(l net.Listener) {
				serveConnections(l, func(c *net.TCPConn, number, _ int) bool {
					mu.Lock()
					defer mu.Unlock()
					connections = max(connections, number+1)
					switch r.IntN(12) {
					case 0:
						_ = c.SetLinger(0)
						return false
					case 1:
						return false
					case 2:
						return true // no answer
					case 3:
						return writeText(c, "no HTTP")
					case 4: // the answer, then a close
						answers++
						writeText(c, answer("web-1", "node-1"))
						return false
					case 5: // an answer with additional bytes
						answers++
						return writeText(c, answer("web-1", "node-1")+"x")
					}
					answers++
					return writeText(c, answer("web-1", "node-1"))
				})
			})
			const connectionCount, attempts = 5, 80
			l := longLane(target, 400, connectionCount)
			l.ReplyDeadline, l.StallAfter = 60*time.Millisecond, 60*time.Millisecond
			got, failed, sources := probe(t, l, attempts), 0, map[netip.AddrPort]bool{}
			for _, a := range got {
				sources[a.Source] = true
				if a.Class != record.OK && a.Class != record.Stalled {
					failed++
				}
			}
			mu.Lock()
			if len(sources) > connectionCount+failed || len(got)-failed > answers {
				t.Errorf("%d attempts, %d failed, %d connections of which %d sent requests, %d answers",
					len(got), failed, len(sources), connections, answers)
			}
			mu.Unlock()
		})
	}
}
