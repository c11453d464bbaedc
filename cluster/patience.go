package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// patience asks an API server again that does not answer: it may be away for the minute that its own upgrade takes, and a run
// must outlast that. What may have been done already is not asked for twice. A balancer in front of the server that says so in the
// server's place (502, 503, 504) is no answer. It is safe for concurrent use.
type patience struct {
	next  http.RoundTripper
	most  time.Duration // after which a request fails
	pause time.Duration // between two tries
	try   time.Duration // that an answer's head may take, by the wall's clock
	clock Clock

	mu       sync.Mutex
	away     time.Time // since when the server has not answered; zero while it does
	answered time.Time // when it did so last
	tell     func(from, to time.Time)
}

// RoundTrip sends the request until it is answered.
func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	begin := p.clock.Now()
	for {
		asked := p.clock.Now()
		answer, err := p.once(r)
		p.note(err, r, asked)
		if err == nil || r.Context().Err() != nil || !again(r, err) {
			return answer, err
		}
		if tried := p.clock.Now().Sub(begin); tried > p.most {
			return nil, fmt.Errorf("tried for %s: %w", tried.Round(time.Second), err)
		}
		if p.clock.Sleep(r.Context(), p.pause) != nil {
			return nil, err
		}
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// again says whether a request may be sent once more: it reads only, or it never reached the server.
func again(r *http.Request, err error) bool {
	if r.Method == http.MethodGet {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && (r.Body == nil || r.GetBody != nil)
}

// once sends the request, and gives up when the answer's head takes too long. A body, as that of a watch, may take for ever.
func (p *patience) once(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(p.try, func() { cancel(errNoAnswer) })
	answer, err := p.next.RoundTrip(r.WithContext(ctx))
	if err == nil && r.Method == http.MethodGet && answer.StatusCode >= http.StatusBadGateway && answer.StatusCode <= http.StatusGatewayTimeout {
		err = errors.Join(fmt.Errorf("the answer was %s", answer.Status), answer.Body.Close())
	}
	if !timer.Stop() && context.Cause(ctx) == errNoAnswer && err != nil {
		err = errNoAnswer
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = &closing{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

// note keeps when the server stopped answering, and tells of it when it answers again. What was asked before the last answer to
// somebody else, and failed, is old news.
func (p *patience) note(err error, r *http.Request, asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && r.Context().Err() == nil && p.away.IsZero() && !asked.Before(p.answered):
		p.away = p.clock.Now()
	case err == nil:
		p.answered = p.clock.Now()
		if !p.away.IsZero() && p.tell != nil {
			p.tell(p.away, p.answered)
		}
		p.away = time.Time{}
	}
}

// errNoAnswer is a server that took the request and said nothing.
var errNoAnswer = &silence{}

type silence struct{}

func (*silence) Error() string   { return "the API server took the request and did not answer in time" }
func (*silence) Timeout() bool   { return true }
func (*silence) Temporary() bool { return true }

// closing calls a function when the body is closed.
type closing struct {
	io.ReadCloser
	then func()
}

// Close closes the body.
func (c *closing) Close() error {
	defer c.then()
	return c.ReadCloser.Close()
}
