//go:build unix

package probes

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// serveKeepAlive serves requests on each connection until then returns false, and closes it.
func serveKeepAlive(listener net.Listener, then func(c *net.TCPConn, request int) bool) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			reader := bufio.NewReader(c)
			for k := 0; ; k++ {
				if _, err := http.ReadRequest(reader); err != nil || !then(c.(*net.TCPConn), k) {
					return
				}
			}
		}()
	}
}

func writeAnswer(c *net.TCPConn) bool {
	_, err := io.WriteString(c, answer("web-1", "node-1"))
	return err == nil
}

func reuseLane(t *testing.T, then func(c *net.TCPConn, request int) bool) Lane {
	l := loopbackLane(listen(t, func(l net.Listener) { serveKeepAlive(l, then) }), 10)
	l.Protocol = ProtocolHTTPReuse
	return l
}

// The first attempt makes a connection and the others use it. An attempt that starts before the last answer, as on a
// stalled machine, makes another one.
func TestReuseKeepsOneConnection(t *testing.T) {
	t.Parallel()
	l := reuseLane(t, func(c *net.TCPConn, _ int) bool { return writeAnswer(c) })
	var lastAnswer time.Duration // of all earlier attempts
	sources, made := map[netip.AddrPort]bool{}, 0
	for _, a := range probe(t, l, 10) {
		if a.Class != record.OK || a.Backend != "web-1" {
			t.Errorf("attempt %d is %v (%s) by %q", a.Seq, a.Class, a.Detail, a.Backend)
		}
		fresh := a.Seq == 0 || a.Start < lastAnswer
		if fresh != (a.Connect > 0) || fresh != (a.TupleAge == 0) {
			t.Errorf("attempt %d started %v after all earlier answers, connected after %v, with a five-tuple of age %v", a.Seq, a.Start-lastAnswer,
				a.Connect, a.TupleAge)
		}
		if fresh {
			made++
		}
		sources[a.Source] = true
		lastAnswer = max(lastAnswer, a.Start+a.Total)
	}
	if len(sources) != made {
		t.Errorf("%d connections, want %d", len(sources), made)
	}
}

// checkSecondAttempts checks that on each connection the first attempt is ok and that the second and last one has the
// class. A stalled machine only adds connections.
func checkSecondAttempts(t *testing.T, attempts []record.Attempt, want record.Class, detail string) {
	t.Helper()
	connections := map[netip.AddrPort][]record.Attempt{}
	for _, a := range attempts {
		connections[a.Source] = append(connections[a.Source], a)
	}
	seconds := 0
	for source, on := range connections {
		allOK(t, on[:1])
		if len(on) > 2 {
			t.Errorf("%d attempts on the connection from %v, want 2", len(on), source)
		}
		for _, a := range on[1:] {
			seconds++
			if a.Class != want || a.Detail != detail {
				t.Errorf("attempt %d is %v (%s), want %v (%s)", a.Seq, a.Class, a.Detail, want, detail)
			}
		}
	}
	if seconds < 2 {
		t.Errorf("only %d connections had a second attempt", seconds)
	}
}

func allOK(t *testing.T, attempts []record.Attempt) {
	t.Helper()
	for _, a := range attempts {
		if a.Class != record.OK || a.Detail != "" {
			t.Errorf("attempt %d is %v (%s), want ok", a.Seq, a.Class, a.Detail)
		}
	}
}

// Every second request on a connection fails; an ordinary client would hide it by a retry.
func TestReuseRecordsResetsThatRetriesHide(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *net.TCPConn){
		"by a reset": func(c *net.TCPConn) { _ = c.SetLinger(0) },
		"by a close": func(*net.TCPConn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := reuseLane(t, func(c *net.TCPConn, request int) bool {
				if request == 1 {
					end(c)
					return false
				}
				return writeAnswer(c)
			})
			checkSecondAttempts(t, probe(t, l, 10), record.Reset, DetailRetried)
		})
	}
}

// The control of the test above: net/http reports no failure.
func TestNetHTTPHidesResets(t *testing.T) {
	t.Parallel()
	target := listen(t, func(l net.Listener) {
		serveKeepAlive(l, func(c *net.TCPConn, request int) bool {
			if request == 1 {
				_ = c.SetLinger(0)
				return false
			}
			return writeAnswer(c)
		})
	})
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for k := range 10 {
		resp, err := client.Get("http://" + target.String() + "/hostname")
		if err != nil {
			t.Fatalf("request %d: %v", k, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// An idle connection may be closed, but not reset.
func TestReuseIdleConnectionMayCloseButNotReset(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(c *net.TCPConn)
		want record.Class
	}{
		{"closed", func(*net.TCPConn) {}, record.OK},
		{"reset", func(c *net.TCPConn) { _ = c.SetLinger(0) }, record.Reset},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := reuseLane(t, func(c *net.TCPConn, _ int) bool {
				_ = writeAnswer(c)
				time.Sleep(5 * time.Millisecond) // the connection is idle then; the next attempt is due in 250 ms
				test.end(c)
				return false
			})
			l.Rate = 4
			attempts := probe(t, l, 7) // the failure of the last connection is recorded at the end of the lane
			if test.want == record.OK {
				allOK(t, attempts)
				return
			}
			checkSecondAttempts(t, attempts, test.want, "ECONNRESET")
		})
	}
}

// An attempt that is due while the connection is in use makes another one.
func TestReuseDoesNotQueue(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int32
	l := reuseLane(t, func(c *net.TCPConn, _ int) bool {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		time.Sleep(350 * time.Millisecond) // the tested answer time
		return writeAnswer(c)
	})
	for _, a := range probe(t, l, 20) {
		if a.Class != record.OK || a.Total > 3*time.Second {
			t.Errorf("attempt %d is %v (%s) after %v", a.Seq, a.Class, a.Detail, a.Total)
		}
	}
	if most.Load() < 3 {
		t.Errorf("at most %d requests at a time, want 3 or more", most.Load())
	}
}
