package cluster

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// absent is a transport to a server that is unreachable until it is back.
type absent struct {
	back  chan struct{}
	tries chan struct{} // receives at the first request
	done  atomic.Int32  // requests that the server answered
}

func (a *absent) RoundTrip(*http.Request) (*http.Response, error) {
	select {
	case <-a.back:
		a.done.Add(1)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	default:
	}
	select {
	case a.tries <- struct{}{}:
	default:
	}
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// An API server that comes back receives each request once, and the silence is reported.
func TestRetriesUntilAPIServerIsBack(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a := &absent{back: make(chan struct{}), tries: make(chan struct{}, 1)}
		reported, announced := 0, 0
		p := &retrier{next: a, limit: time.Hour, pause: time.Millisecond, timeout: time.Hour, clock: RealClock{},
			announce: func() { announced++ }, report: func(from, to time.Time) { reported++ }}
		r, err := http.NewRequest(method, "http://192.0.2.1", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			answer, err := p.RoundTrip(r)
			if err == nil {
				err = answer.Body.Close()
			}
			done <- err
		}()
		<-a.tries // the first request has failed
		close(a.back)
		if err := <-done; err != nil || a.done.Load() != 1 || announced != 1 || reported != 1 {
			t.Errorf("%s: %v, answered %d times, announced %d times, reported %d times; want once", method, err, a.done.Load(), announced, reported)
		}
	}
}

// A silence of a minute is survived and reported. A longer one is an error after the limit, which the error names. Both times may be
// longer by one pause.
func TestHowLongAnAPIServerIsWaitedFor(t *testing.T) {
	for away, want := range map[time.Duration]string{time.Minute: "", time.Hour: "tried for 1m31s: "} {
		synctest.Test(t, func(t *testing.T) {
			a := &absent{back: make(chan struct{}), tries: make(chan struct{}, 1)}
			time.AfterFunc(away, func() { close(a.back) })
			reported := time.Duration(0)
			p := &retrier{next: a, limit: silenceLimit, pause: retryPause, timeout: answerTimeout, clock: RealClock{}, report: func(from, to time.Time) { reported = to.Sub(from) }}
			r, err := http.NewRequest(http.MethodGet, "http://192.0.2.1", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := p.RoundTrip(r)
			if want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("away for %s: %v, want %q", away, err, want)
				}
				return
			}
			if err != nil || answer.Body.Close() != nil || reported < away || reported > away+retryPause {
				t.Errorf("away for %s: %v, reported %s", away, err, reported)
			}
		})
	}
}

// breaking is a transport whose connections are reset after the request was sent.
type breaking struct{ sent int }

func (b *breaking) RoundTrip(*http.Request) (*http.Response, error) {
	b.sent++
	return nil, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
}

// A write that may have happened is not repeated. A read is repeated until the limit.
func TestWriteThatMayHaveHappenedIsNotRepeated(t *testing.T) {
	for method, most := range map[string]int{http.MethodPost: 1, http.MethodGet: 1 << 20} {
		b := &breaking{}
		p := &retrier{next: b, limit: 50 * time.Millisecond, pause: time.Millisecond, timeout: 30 * time.Second, clock: RealClock{}}
		r, err := http.NewRequest(method, "http://192.0.2.1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.RoundTrip(r); err == nil || b.sent > most || method == http.MethodGet && b.sent < 2 {
			t.Errorf("%s: %v, sent %d times", method, err, b.sent)
		}
	}
}

// unavailable is a transport to a server that answers with a status twice, and then with success.
type unavailable struct{ status, sent int }

func (a *unavailable) RoundTrip(*http.Request) (*http.Response, error) {
	if a.sent++; a.sent > 2 {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	return &http.Response{StatusCode: a.status, Body: http.NoBody}, nil
}

// A read that a load balancer answers (502 to 504) is repeated. A write is not, because it may have happened; nor is a read that
// the API server itself answers.
func TestOnlyReadsAnsweredByALoadBalancerAreRepeated(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for status, repeats := range map[int]bool{500: false, 502: true, 503: true, 504: true, 505: false} {
			a := &unavailable{status: status}
			p := &retrier{next: a, limit: time.Hour, pause: time.Millisecond, timeout: time.Hour, clock: RealClock{}}
			r, err := http.NewRequest(method, "http://192.0.2.1", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			want, sent := status, 1
			if repeats && method == http.MethodGet {
				want, sent = http.StatusOK, 3
			}
			answer, err := p.RoundTrip(r)
			if err != nil || answer.Body.Close() != nil || answer.StatusCode != want || a.sent != sent {
				t.Errorf("%s answered with %d: %v, sent %d times; want %d, sent %d times", method, status, err, a.sent, want, sent)
			}
		}
	}
}

// A server that accepts a request and does not answer causes an error.
func TestSilentAPIServerIsAnError(t *testing.T) {
	quiet := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-quiet:
		case <-r.Context().Done():
		}
	}))
	defer api.Close()
	defer close(quiet)
	p := &retrier{next: &http.Transport{DisableKeepAlives: true}, limit: time.Millisecond, pause: time.Millisecond, timeout: 20 * time.Millisecond, clock: RealClock{}}
	r, err := http.NewRequest(http.MethodGet, api.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RoundTrip(r); !errors.Is(err, errNoAnswer) || !strings.Contains(Explain(err).Error(), "whether this machine reaches it") {
		t.Errorf("%v, want %v", err, errNoAnswer)
	}
}
