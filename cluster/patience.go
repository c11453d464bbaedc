package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// patience asks an API server again that does not answer: it may be away for the minute that its own upgrade takes, and a run
// must outlast that. What may have been done already is not asked for twice. It is safe for concurrent use.
type patience struct {
	next  http.RoundTripper
	most  time.Duration // after which a request fails
	pause time.Duration // between two tries
	try   time.Duration // that an answer's head may take

	mu   sync.Mutex
	away time.Time // since when the server has not answered; zero while it does
	tell func(from, to time.Time)
}

// RoundTrip sends the request until it is answered.
func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	for end := time.Now().Add(p.most); ; {
		answer, err := p.once(r)
		p.note(err, r)
		if err == nil || r.Context().Err() != nil || !again(r, err) || time.Now().After(end) {
			return answer, err
		}
		timer := time.NewTimer(p.pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
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

// note keeps when the server stopped answering, and tells of it when it answers again.
func (p *patience) note(err error, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && r.Context().Err() == nil && p.away.IsZero():
		p.away = time.Now()
	case err == nil && !p.away.IsZero():
		if p.tell != nil {
			p.tell(p.away, time.Now())
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
