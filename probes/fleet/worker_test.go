package fleet

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

// fakeEngine makes no attempts. Its target answers from the third check on.
type fakeEngine struct {
	begin  time.Time
	record func(record.Attempt)
	checks int

	once   sync.Once
	closed chan struct{}
	end    time.Duration // when it was closed
}

func (e *fakeEngine) Now() time.Duration                        { return time.Since(e.begin) }
func (e *fakeEngine) Start(probes.Lane, time.Duration) error    { return nil }
func (e *fakeEngine) Answers(context.Context, probes.Lane) bool { e.checks++; return e.checks >= 3 }
func (e *fakeEngine) Close()                                    { e.once.Do(func() { e.end = e.Now(); close(e.closed) }) }

func (e *fakeEngine) Run(ctx context.Context) error {
	select {
	case <-e.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isClosed reports whether the worker has ended its engine.
func (e *fakeEngine) isClosed() bool {
	synctest.Wait()
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// superviseFake runs a worker with a fake engine until the test ends. It is called in a bubble.
func superviseFake(t *testing.T) (*worker, *fakeEngine) {
	t.Helper()
	e := &fakeEngine{begin: time.Now(), closed: make(chan struct{})}
	lane := probes.Lane{ID: laneID, Name: "fleet", Target: netip.MustParseAddrPort("192.0.2.1:80"), Rate: 10}
	w, err := newWorker(lane.WithDefaults(), func(_ string, recorder func(record.Attempt)) (Engine, error) {
		e.record = recorder
		return e, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { w.supervise(ctx) })
	running.Go(func() { _ = w.run(ctx) }) // the context's error
	return w, e
}

// ask sends the worker a request from a number on, as a collector does.
func ask(t *testing.T, w *worker, from uint64) answer {
	t.Helper()
	r := Request{Incarnation: w.journal.incarnation, Number: 1, From: from, Command: commandWait}
	out := httptest.NewRecorder()
	w.handler().ServeHTTP(out, httptest.NewRequest("GET", Path+"?"+r.Query().Encode(), nil))
	a, err := decode(out.Body.Bytes())
	if err != nil {
		t.Fatalf("status %d: %v", out.Code, err)
	}
	return a
}

// Each request keeps a worker alive for 15 minutes. Without one it ends at the next check, and gives the reason.
func TestWorkerWithoutRequestsEnds(t *testing.T) {
	const limit, between, check = 15 * time.Minute, 14*time.Minute + 59*time.Second, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		w, e := superviseFake(t)
		for range 2 {
			time.Sleep(between)
			if a := ask(t, w, 0); e.isClosed() || a.EndReason != "" || !a.Reached {
				t.Fatalf("at %v: %+v", e.Now(), a.head)
			}
		}
		last := e.Now()
		time.Sleep(limit)
		if e.isClosed() {
			t.Errorf("it ended %v after its last request", e.end-last)
		}
		time.Sleep(check)
		if !e.isClosed() {
			t.Fatalf("it runs %v after its last request", e.Now()-last)
		}
		if a := ask(t, w, 0); a.State != stateEnded || !strings.Contains(a.EndReason, "no collector requested its attempts for 15m0s") {
			t.Errorf("%+v", a.head)
		}
	})
}

// A worker with 100,000 attempts ends and gives the reason. All of them can still be fetched.
func TestWorkerWithAFullJournalEnds(t *testing.T) {
	const limit = 100_000
	synctest.Test(t, func(t *testing.T) {
		w, e := superviseFake(t)
		for i := range limit - 1 {
			e.record(record.Attempt{Lane: laneID, Seq: uint64(i), Class: record.OK})
		}
		if a := ask(t, w, 0); e.isClosed() || a.EndReason != "" {
			t.Fatalf("with %d attempts: %+v", limit-1, a.head)
		}
		e.record(record.Attempt{Lane: laneID, Seq: limit - 1, Class: record.OK})
		if !e.isClosed() {
			t.Fatalf("it runs with %d attempts", limit)
		}
		for next := uint64(0); next < limit; {
			a := ask(t, w, next)
			if a.State != stateEnded || a.Total != limit || len(a.records) == 0 || !strings.Contains(a.EndReason, "no collector fetched its last 100000 attempts") {
				t.Fatalf("from %d on: %d records, %+v", next, len(a.records), a.head)
			}
			next += uint64(len(a.records))
		}
	})
}
