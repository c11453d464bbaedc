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

// converse serves requests on each connection until then returns false, and closes it.
func converse(listener net.Listener, then func(c *net.TCPConn, request int) bool) {
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

func say(c *net.TCPConn) bool {
	_, err := io.WriteString(c, answer("web-1", "node-1"))
	return err == nil
}

func reuseLane(t *testing.T, then func(c *net.TCPConn, request int) bool) Lane {
	l := loopbackLane(listen(t, func(l net.Listener) { converse(l, then) }), 10)
	l.Protocol = ProtocolHTTPReuse
	return l
}

// The first attempt makes a connection, and the others take it; but for one that starts while the earlier one still waits for its
// answer, as on a machine that stands still for longer than the gap of the lane.
func TestReuseKeepsOneConnection(t *testing.T) {
	t.Parallel()
	l := reuseLane(t, func(c *net.TCPConn, _ int) bool { return say(c) })
	var over time.Duration // when the last of the earlier attempts had its answer
	sources, made := map[netip.AddrPort]bool{}, 0
	for _, a := range probe(t, l, 10) {
		if a.Class != record.OK || a.Backend != "web-1" {
			t.Errorf("attempt %d is %v (%s) by %q", a.Seq, a.Class, a.Detail, a.Backend)
		}
		fresh := a.Seq == 0 || a.Start < over
		if fresh != (a.Connect > 0) || fresh != (a.TupleAge == 0) {
			t.Errorf("attempt %d started %v after all earlier answers, and connected after %v, with a five-tuple used %v before", a.Seq, a.Start-over,
				a.Connect, a.TupleAge)
		}
		if fresh {
			made++
		}
		sources[a.Source] = true
		over = max(over, a.Start+a.Total)
	}
	if len(sources) != made {
		t.Errorf("%d connections, want %d", len(sources), made)
	}
}

// secondsAre asserts that the first attempt on each connection is ok, and that the second, the last there, is not. A machine
// that stands still for longer than the gap of the lane makes one connection more, and changes nothing of that.
func secondsAre(t *testing.T, attempts []record.Attempt, want record.Class, detail string) {
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
		t.Errorf("%d connections had a second attempt", seconds)
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

// What an ordinary client would have hidden by sending the request again: every second request on a connection dies.
func TestReuseTellsWhatARetryWouldHide(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *net.TCPConn){
		"by a reset": func(c *net.TCPConn) { _ = c.SetLinger(0) },
		"by an end":  func(*net.TCPConn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := reuseLane(t, func(c *net.TCPConn, request int) bool {
				if request == 1 {
					end(c)
					return false
				}
				return say(c)
			})
			secondsAre(t, probe(t, l, 10), record.Reset, DetailRetried)
		})
	}
}

// The control of the test above: net/http sees nothing of it, which is why probes do not use it.
func TestOrdinaryClientsHideIt(t *testing.T) {
	t.Parallel()
	target := listen(t, func(l net.Listener) {
		converse(l, func(c *net.TCPConn, request int) bool {
			if request == 1 {
				_ = c.SetLinger(0)
				return false
			}
			return say(c)
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
func TestReuseWhileIdle(t *testing.T) {
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
				_ = say(c)
				time.Sleep(5 * time.Millisecond) // it is idle then, and the next attempt is due in a quarter of a second
				test.end(c)
				return false
			})
			l.Rate = 4
			attempts := probe(t, l, 7) // the last one's connection is over at the end of the lane, and is told of too
			if test.want == record.OK {
				allOK(t, attempts)
				return
			}
			secondsAre(t, attempts, test.want, "ECONNRESET")
		})
	}
}

// An attempt that is due while the connection is in use makes another one: the schedule waits for nobody.
func TestReuseDoesNotQueue(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int32
	l := reuseLane(t, func(c *net.TCPConn, _ int) bool {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		time.Sleep(350 * time.Millisecond) // the answer's time is what is tested
		return say(c)
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
