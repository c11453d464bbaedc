package prober

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// tape is a recorder that stores events and counts attempts.
type tape struct {
	mu       sync.Mutex
	lanes    []record.Event
	attempts map[string]int // by lane id
}

func (r *tape) Event(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind() == record.KindLane {
		r.lanes = append(r.lanes, e)
	}
}

func (r *tape) Attempt(a record.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempts == nil {
		r.attempts = map[string]int{}
	}
	if a.Class == record.OK {
		r.attempts[r.lanes[a.Lane-1].Object]++
	}
}

// good returns the number of ok attempts of the lane so far.
func (r *tape) good(lane string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[lane]
}

// inProcess is a probe worker in this process.
type inProcess struct {
	done chan struct{}
	err  error
}

func (w *inProcess) Done() <-chan struct{} { return w.done }
func (w *inProcess) ExitText() string {
	if w.err != nil {
		return w.err.Error()
	}
	return "exit status 0"
}

func startHere(t *testing.T, recorder record.Recorder) *Prober {
	t.Helper()
	begin := time.Now()
	p, err := Start(Config{Record: recorder, Now: func() time.Duration { return time.Since(begin) }, Seed: 1, Client: "here"},
		func(in io.Reader, out io.Writer) (Worker, error) {
			w := &inProcess{done: make(chan struct{})}
			go func() {
				defer close(w.done)
				w.err = probes.Work(context.Background(), in, out)
			}()
			return w, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// awaitMore waits until the lane has more ok attempts.
func awaitMore(t *testing.T, r *tape, lane string) {
	t.Helper()
	before := r.good(lane)
	for deadline := time.Now().Add(time.Minute); r.good(lane) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute the lane %s still has %d ok attempts", lane, before)
		}
	}
}

// A lane to a pod lasts while its endpoint is ready. Each such lane has a unique name, and its event names the pod.
func TestPodsAreAskedWhileTheyAreReady(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "web-1") }))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	recorder := &tape{}
	p := startHere(t, recorder)
	like := scenarios.LaneSpec{Service: "web", Rate: 50, Control: true, Role: record.RolePod, Protocol: probes.ProtocolTCPNew, Backends: []string{"web-"}}
	pods := NewPods(t.Context(), p, like, number)
	tell := func(service string, state record.EndpointState) {
		pods.Event(record.Event{Node: "node-1", Body: record.Endpoint{Service: service, Address: host, Pod: "web-1", State: state}})
	}
	tell("other", record.EndpointReady)
	tell("web", record.EndpointUnready)
	if len(recorder.lanes) != 0 {
		t.Fatalf("lanes %+v before an endpoint of the Service was ready", recorder.lanes)
	}
	tell("web", record.EndpointReady)
	tell("web", record.EndpointReady)
	awaitMore(t, recorder, "pod-web-1")
	tell("web", record.EndpointServingTerminating)
	tell("web", record.EndpointRemoved)
	tell("web", record.EndpointReady)
	awaitMore(t, recorder, "pod-web-1-2")
	if err := pods.Close(); err != nil {
		t.Error(err)
	}
	tell("web", record.EndpointRemoved)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if len(recorder.lanes) != 2 {
		t.Fatalf("%d lanes, want one each time that the endpoint was ready: %+v", len(recorder.lanes), recorder.lanes)
	}
	for _, e := range recorder.lanes {
		l := e.Body.(record.Lane)
		if l.Role != record.RolePod || !l.Control || l.Pod != "web-1" || l.Node != "node-1" || l.Service != "web" {
			t.Errorf("the lane is declared as %+v", l)
		}
	}
}

// A lane with lasting connections starts the lane of its fresh connections. Failures of that lane and of pods' lanes do not count.
func TestOnlyMeasuredLanesFail(t *testing.T) {
	const target = "127.0.0.1:1" // refuses all attempts: tests get ports above 1023
	recorder := &tape{}
	p := startHere(t, recorder)
	for _, l := range []scenarios.LaneSpec{
		{Name: "tcp-long", Target: target, Rate: 50, Protocol: probes.ProtocolTCPLong, Connections: 2},
		{Name: "pod", Target: target, Rate: 50, Control: true, Role: record.RolePod},
	} {
		if _, err := p.StartLane(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, e := range recorder.lanes {
		l := e.Body.(record.Lane)
		names = append(names, fmt.Sprintf("%d %s %t", l.ID, e.Object, l.Control))
	}
	if got, want := strings.Join(names, ", "), "1 tcp-long false, 2 tcp-long-fresh true, 3 pod true"; got != want {
		t.Errorf("lanes %s, want %s", got, want)
	}
	if p.Failures() == 0 {
		t.Error("without a listener no attempt of tcp-long failed")
	}
	measured := p.Failures()
	p.count(record.Attempt{Lane: 2, Class: record.Reset})
	p.count(record.Attempt{Lane: 3, Class: record.Reset})
	if p.Failures() != measured {
		t.Error("an attempt of a control lane counts as a failure")
	}
}
