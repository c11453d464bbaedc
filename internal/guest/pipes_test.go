//go:build linux

package guest

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// pipes is a listener whose connections are in memory, so that the goroutines on both sides can be in a bubble of synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

// servePipes serves a handler until the test ends, and returns a transport to it.
func servePipes(t *testing.T, handler http.Handler) http.RoundTripper {
	t.Helper()
	l := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: handler}
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close() // closes no socket
		<-served
	})
	return &http.Transport{DialContext: l.dial}
}

// settled is a transport whose changes return when all watches have followed. Without it, chance decides whether a controller sees a
// cordon before the eviction that comes next.
type settled struct{ http.RoundTripper }

func (s settled) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(r)
	if r.Method != http.MethodGet {
		time.Sleep(time.Millisecond) // the clock of a bubble stands still while a goroutine can go on
	}
	return answer, err
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case p.conns <- other:
		return own, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil } // the server calls it once
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
