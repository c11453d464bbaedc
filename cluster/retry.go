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

// retrier repeats requests that an API server does not answer: an upgrade of the server takes a minute, which a run must survive. It
// does not repeat writes that may have happened. Answers of a load balancer (502, 503, 504) count as silence. It is safe for
// concurrent use.
type retrier struct {
	next    http.RoundTripper
	limit   time.Duration // total time of a request
	pause   time.Duration // between two tries
	timeout time.Duration // of the header of an answer, by the real clock
	clock   Clock

	mu          sync.Mutex
	silentSince time.Time // zero while the server answers
	lastAnswer  time.Time // time of the last answer
	report      func(from, to time.Time)
	announce    func() // at the begin of a silence
}

// RoundTrip sends the request until it is answered or the limit is reached.
func (p *retrier) RoundTrip(r *http.Request) (*http.Response, error) {
	begin := p.clock.Now()
	var last error // of the try before
	for {
		asked := p.clock.Now()
		answer, err := p.send(r)
		p.noteAnswer(err, r, asked)
		if err != nil && r.Context().Err() != nil && last != nil {
			return nil, fmt.Errorf("%w; before that: %w", err, last)
		}
		if err == nil || r.Context().Err() != nil || !canRetry(r, err) {
			return answer, err
		}
		last = err
		if tried := p.clock.Now().Sub(begin); tried > p.limit {
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

// canRetry reports whether a request can be repeated: it only reads, or it never reached the server.
func canRetry(r *http.Request, err error) bool {
	if r.Method == http.MethodGet {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && (r.Body == nil || r.GetBody != nil)
}

// send sends the request and fails when the header of the answer takes too long. The body has no limit, since watches do not end.
func (p *retrier) send(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(p.timeout, func() { cancel(errNoAnswer) })
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
	answer.Body = &closeHook{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

// noteAnswer keeps the time when the server stopped answering, and reports the silence when it answers again. Failed requests from
// before the last answer are ignored.
func (p *retrier) noteAnswer(err error, r *http.Request, asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && r.Context().Err() == nil && p.silentSince.IsZero() && !asked.Before(p.lastAnswer):
		p.silentSince = p.clock.Now()
		if p.announce != nil {
			p.announce()
		}
	case err == nil:
		p.lastAnswer = p.clock.Now()
		if !p.silentSince.IsZero() && p.report != nil {
			p.report(p.silentSince, p.lastAnswer)
		}
		p.silentSince = time.Time{}
	}
}

// errNoAnswer is the error of a server that accepted the request and did not answer.
var errNoAnswer = &noAnswerError{}

type noAnswerError struct{}

func (*noAnswerError) Error() string {
	return "the API server accepted the request and did not answer in time"
}
func (*noAnswerError) Timeout() bool   { return true }
func (*noAnswerError) Temporary() bool { return true }

// closeHook calls a function when the body is closed.
type closeHook struct {
	io.ReadCloser
	hook func()
}

// Close closes the body.
func (c *closeHook) Close() error {
	defer c.hook()
	return c.ReadCloser.Close()
}
