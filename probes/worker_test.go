//go:build unix

package probes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// worker runs Work and reads its output.
type worker struct {
	*Orders
	base int64
	in   *io.PipeWriter
	out  *io.PipeReader
	done chan error
	read chan record.Attempt // closed at the end of a complete stream
	seen []record.Attempt    // attempts received by next
}

func startWorker(t *testing.T, ctx context.Context) *worker {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	w := &worker{base: monotonic(t), in: inWrite, out: outRead, done: make(chan error, 1), read: make(chan record.Attempt, 100_000)}
	go func() {
		err := Work(ctx, inRead, outWrite)
		_ = inRead.Close()
		_ = outWrite.Close()
		w.done <- err
	}()
	go func() {
		defer close(w.read)
		for r := record.NewAttemptReader(outRead); ; {
			a, err := r.Read()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("reading attempts: %v", err)
				}
				return
			}
			w.read <- a
		}
	}()
	var err error
	if w.Orders, err = NewOrders(inWrite, w.base, 1, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// now returns the current offset in the worker's run.
func (w *worker) now(t *testing.T) time.Duration { return time.Duration(monotonic(t) - w.base) }

// next receives the next attempt.
func (w *worker) next(t *testing.T) {
	t.Helper()
	select {
	case a, open := <-w.read:
		if open {
			w.seen = append(w.seen, a)
			return
		}
		t.Fatal("the stream of attempts ended")
	case <-time.After(20 * time.Second):
		t.Fatal("no attempt within 20 s")
	}
}

// finish ends the orders and returns the attempts by lane, sorted by number.
func (w *worker) finish(t *testing.T) (map[uint16][]record.Attempt, error) {
	t.Helper()
	_ = w.in.Close()
	select {
	case err := <-w.done:
		seen := w.seen
		for a := range w.read {
			seen = append(seen, a)
		}
		return numbered(t, seen), err
	case <-time.After(20 * time.Second):
		t.Fatal("the worker did not end within 20 s")
		return nil, nil
	}
}

// numbered sorts attempts by number and checks that each number from 0 on occurs once.
func numbered(t *testing.T, attempts []record.Attempt) map[uint16][]record.Attempt {
	t.Helper()
	byLane := map[uint16]map[uint64]record.Attempt{}
	for _, a := range attempts {
		if byLane[a.Lane] == nil {
			byLane[a.Lane] = map[uint64]record.Attempt{}
		}
		if _, twice := byLane[a.Lane][a.Seq]; twice {
			t.Errorf("attempt %d of lane %d was recorded twice", a.Seq, a.Lane)
		}
		byLane[a.Lane][a.Seq] = a
	}
	ordered := map[uint16][]record.Attempt{}
	for id, bySeq := range byLane {
		for seq := range uint64(len(bySeq)) {
			a, there := bySeq[seq]
			if !there {
				t.Fatalf("attempt %d of lane %d is missing, %d were recorded", seq, id, len(bySeq))
			}
			ordered[id] = append(ordered[id], a)
		}
	}
	return ordered
}

// tooLate reports whether the machine did not let the worker start the attempt in time, and checks that its class says
// so.
func tooLate(t *testing.T, a record.Attempt) bool {
	t.Helper()
	late := a.Lateness() > lateLimit
	if late != (a.Class == record.Probe && a.Detail == DetailLate) {
		t.Errorf("attempt %d, %v late, is %v (%s)", a.Seq, a.Lateness(), a.Class, a.Detail)
	}
	return late
}

func loopbackLane(target netip.AddrPort, rate float64) Lane {
	return Lane{ID: 1, Name: "loopback", Target: target, Rate: rate, Backends: []string{"web-"},
		DialDeadline: 10 * time.Second, ReplyDeadline: 10 * time.Second} // not reached unless a test sets others
}

func TestWorkerAccountsForEveryAttempt(t *testing.T) {
	leak := leakCheck(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hostname" || r.Host != "web.example" || !strings.HasPrefix(r.Header.Get("X-Hitless-Attempt"), "1/") {
			t.Errorf("request %s of %s with attempt %q", r.URL, r.Host, r.Header.Get("X-Hitless-Attempt"))
		}
		w.Header().Set("X-Hitless-Node", "node-1")
		w.Header().Set("X-Hitless-Terminating-Ms", "20")
		_, _ = io.WriteString(w, "web-1")
	}))
	w := startWorker(t, context.Background())
	l := loopbackLane(netip.MustParseAddrPort(server.Listener.Addr().String()), 200)
	l.Host = "web.example"
	from := w.now(t) + 20*time.Millisecond
	if err := errors.Join(w.Start(l, from), w.Stop(1, from+500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 100 { // attempts arrive before the end of the orders
		w.next(t)
	}
	attempts, err := w.finish(t)
	if err != nil || len(attempts[1]) != 100 {
		t.Errorf("%d attempts, want 100: %v", len(attempts[1]), err)
	}
	for _, a := range attempts[1] {
		if tooLate(t, a) {
			continue
		}
		if a.Class != record.OK || a.Backend != "web-1" || a.Node != "node-1" || a.Terminating != 20*time.Millisecond ||
			!a.Source.Addr().IsLoopback() || a.Source.Port() == 0 || a.Connect <= 0 || a.Total < a.Connect {
			t.Errorf("attempt %d: %+v", a.Seq, a)
		}
		if want := from + time.Duration(a.Seq)*5*time.Millisecond; a.Intended != want || a.Start < want {
			t.Errorf("attempt %d intended at %v, started at %v, want %v", a.Seq, a.Intended, a.Start, want)
		}
	}
	server.Close()
	leak()
}

func TestWorkerEndsWhenItsOrdersEnd(t *testing.T) {
	silent := listen(t, func(l net.Listener) { serveOnce(l, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }) })
	w := startWorker(t, context.Background())
	from := w.now(t)
	l := loopbackLane(silent, 100)
	l.ReplyDeadline = 500 * time.Millisecond
	if err := w.Start(l, from); err != nil {
		t.Fatal(err)
	}
	w.next(t) // the first timeout: the lane runs, some attempts are in flight
	closing := w.now(t)
	attempts, err := w.finish(t)
	if err != nil {
		t.Error(err)
	}
	if took := w.now(t) - closing; took > 5*time.Second {
		t.Errorf("the worker took %v to end, its deadlines are 0.5 s", took)
	}
	classes := map[record.Class]int{}
	for _, a := range attempts[1] {
		if !tooLate(t, a) {
			classes[a.Class]++
		}
	}
	if classes[record.ReplyTimeout] == 0 || len(classes) != 1 {
		t.Errorf("classes %v, want only reply-timeout", classes)
	}
}

func TestWorkerRejectsInvalidOrders(t *testing.T) {
	lane := `{"start":{"id":1,"name":"a","target":"127.0.0.1:1","rate":1},"atNs":`
	for name, test := range map[string]struct{ orders, want string }{
		"nothing":             {"", "first line"},
		"no base":             {`{"seed":1}`, `"base"`},
		"start first":         {lane + "1}", `"base"`},
		"no JSON":             {"{}\nhello", `"base"`},
		"unknown word":        {`{"base":1,"seed":1,"speed":3}`, "speed"},
		"no JSON later":       {"{\"base\":1,\"seed\":1}\nhello", "hello"},
		"two values":          {"{\"base\":1,\"seed\":1}\n{\"stop\":1,\"atNs\":1}{}", "more than one"},
		"start without time":  {"{\"base\":1,\"seed\":1}\n" + strings.TrimSuffix(lane, `,"atNs":`) + "}", "neither"},
		"base twice":          {"{\"base\":1,\"seed\":1}\n{\"base\":1,\"seed\":1}", "neither"},
		"stop of nothing":     {"{\"base\":1,\"seed\":1}\n{\"stop\":4,\"atNs\":1}", "lane 4"},
		"no drop of nothing":  {"{\"base\":1,\"seed\":1}\n{\"dropReplies\":4,\"atNs\":1,\"untilNs\":2}", "lane 4"},
		"lane without a rate": {"{\"base\":1,\"seed\":1}\n{\"start\":{\"id\":1,\"name\":\"a\",\"target\":\"127.0.0.1:1\"},\"atNs\":1}", "rate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Work(context.Background(), strings.NewReader(test.orders), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one about %s", err, test.want)
			}
		})
	}
}

// An invalid order ends the worker after it has written the attempts so far.
func TestWorkerWritesAttemptsBeforeItFails(t *testing.T) {
	target := listen(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
	w := startWorker(t, context.Background())
	if err := w.Start(loopbackLane(target, 100), w.now(t)); err != nil {
		t.Fatal(err)
	}
	w.next(t)
	if err := w.Stop(99, 0); err != nil {
		t.Fatal(err)
	}
	attempts, err := w.finish(t)
	if err == nil || !strings.Contains(err.Error(), "lane 99") {
		t.Errorf("error %v, want one about lane 99", err)
	}
	for _, a := range attempts[1] {
		if !tooLate(t, a) && a.Class != record.OK {
			t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
		}
	}
}

// An interrupted worker reports its attempts in flight as cancelled.
func TestWorkerOnInterrupt(t *testing.T) {
	requested := make(chan struct{}, 1)
	silent := listen(t, func(l net.Listener) {
		serveOnce(l, func(c *net.TCPConn) {
			select {
			case requested <- struct{}{}:
			default: // not the first one
			}
			_, _ = io.Copy(io.Discard, c)
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	w := startWorker(t, ctx)
	l := loopbackLane(silent, 100)
	l.ReplyDeadline = time.Minute
	if err := w.Start(l, w.now(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-requested:
	case <-time.After(10 * time.Second):
		t.Error("the worker made no request")
	}
	cancel()
	attempts, err := w.finish(t)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	cancelled := 0
	for _, a := range attempts[1] {
		if tooLate(t, a) {
			continue
		}
		if cancelled++; a.Class != record.Probe || a.Detail != DetailCancelled {
			t.Errorf("attempt %d is %v (%s)", a.Seq, a.Class, a.Detail)
		}
	}
	if cancelled == 0 {
		t.Error("the attempt of the request is not reported")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWorkerEndsWhenOutputFails(t *testing.T) {
	target := listen(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
	in, orders := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Work(context.Background(), in, brokenWriter{}) }()
	o, err := NewOrders(orders, monotonic(t), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(loopbackLane(target, 100), 0); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the worker did not end after a write error")
	}
	_ = orders.Close()
}

func TestSpoolKeepsOrderAndBounds(t *testing.T) {
	var out bytes.Buffer
	s := newSpool(&out)
	var want bytes.Buffer
	for i := range 10_000 {
		line := bytes.Repeat([]byte{byte(i)}, i%50)
		want.Write(line)
		if _, err := s.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("%d of %d bytes, or in another order: %v", out.Len(), want.Len(), err)
	}
	blocked, release := io.Pipe()
	s = newSpool(release)
	var err error
	for written := 0; written <= 2*spoolLimit && err == nil; written += 1 << 20 {
		_, err = s.Write(make([]byte, 1<<20))
	}
	if err == nil {
		t.Error("a reader that does not read fills the memory")
	}
	_ = blocked.Close()
	if s.close() == nil {
		t.Error("the first error was not returned again")
	}
}

func TestClockMapsMonotonicTime(t *testing.T) {
	base := monotonic(t)
	c, err := newClock(base)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		low := time.Duration(monotonic(t) - base)
		got := c.Now()
		high := time.Duration(monotonic(t) - base)
		if got < low-50*time.Microsecond || got > high+50*time.Microsecond {
			t.Fatalf("the clock returned %v between %v and %v", got, low, high)
		}
	}
}

func TestCommandIsHidden(t *testing.T) {
	c := Command()
	if !c.Hidden || c.Name() != WorkerName || c.Flags().Lookup("fifo") == nil {
		t.Errorf("%+v", c)
	}
	var out bytes.Buffer
	c.SetIn(strings.NewReader(`{"base":1,"seed":1}` + "\n"))
	c.SetOut(&out)
	c.SetArgs([]string{}) // nil would mean the arguments of the test binary
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := record.NewAttemptReader(&out).Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream without attempts is incomplete: %v", err)
	}
}

// leakCheck returns a function that checks that no goroutine and no descriptor was leaked.
func leakCheck(t *testing.T) func() {
	t.Helper()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	goroutines, fds := runtime.NumGoroutine(), descriptors()
	return func() {
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > goroutines || descriptors() > fds {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<16)
				t.Fatalf("%d goroutines and %d descriptors, before %d and %d\n%s", runtime.NumGoroutine(), descriptors(),
					goroutines, fds, stacks[:runtime.Stack(stacks, true)])
			}
			runtime.Gosched()
		}
	}
}
