package balancer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// server is a fake node; its fields may change at any time.
type server struct {
	status int // HTTP status; 0 accepts and never responds; -1 refuses connections
	asked  []time.Duration
	path   string // other paths get 404; empty accepts all
	start  time.Time
}

func (s *server) dial(context.Context, string, string) (net.Conn, error) {
	s.asked = append(s.asked, time.Since(s.start))
	if s.status < 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		request, err := http.ReadRequest(bufio.NewReader(there))
		if err != nil {
			return
		}
		status := s.status
		if s.path != "" && request.URL.Path != s.path {
			status = http.StatusNotFound
		}
		if status == 0 {
			there.Read(make([]byte, 1)) // until the client closes
			return
		}
		fmt.Fprintf(there, "HTTP/1.1 %d word\r\nContent-Length: 2\r\n\r\n{}", status)
	}()
	return here, nil
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		status int
		path   string
		pass   bool
		word   string
	}{
		{200, "/healthz", true, "200"}, {302, "/", true, "302"}, {503, "/healthz", false, "503"},
		{0, "/", false, "timeout"}, {-1, "/", false, "refused"}, {0, "", true, "connected"}, {-1, "", false, "refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{status: c.status, path: c.path, start: time.Now()}
			check := checker{checkSpec: checkSpec{port: 1, path: c.path}, node: netip.MustParseAddr("10.0.0.11"),
				interval: 5 * time.Second, now: func() time.Duration { return time.Since(s.start) }, dial: s.dial}
			got := check.check(t.Context(), 5*time.Second)
			if got.pass != c.pass || got.status != c.word {
				t.Errorf("status %d, path %q: pass %t (%s), want %t (%s)", c.status, c.path, got.pass, got.status, c.pass, c.word)
			}
			if got.at > 5*time.Second {
				t.Errorf("status %d: the check took %s of 5s", c.status, got.at)
			}
		})
	}
}

// The phase of checks does not depend on whether and how fast the node responds.
func TestChecksKeepTheirPhase(t *testing.T) {
	for _, status := range []int{200, 0, -1} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{status: status, start: time.Now()}
			c := checker{checkSpec: checkSpec{port: 1, path: "/"}, interval: 5 * time.Second, phase: 3750 * time.Millisecond,
				now: func() time.Duration { return time.Since(s.start) + 20*time.Second }, dial: s.dial}
			ctx, cancel := context.WithCancel(t.Context())
			go c.run(ctx, func(checkResult) {})
			time.Sleep(22 * time.Second)
			cancel()
			synctest.Wait()
			want := []time.Duration{0, 3750, 8750, 13750, 18750}
			var got []time.Duration
			// The clock of the run reads 20 s at the first check: the phase counts from the start of the run.
			for _, at := range s.asked {
				got = append(got, at.Truncate(time.Millisecond)/time.Millisecond)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("status %d: checks at %d ms, want %d ms", status, got, want)
			}
		})
	}
}
