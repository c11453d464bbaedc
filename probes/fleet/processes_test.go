package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
)

// The test binary is also the worker program.
func init() {
	if len(os.Args) > 1 && os.Args[1] == fleet.WorkerName {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		c := fleet.Command()
		c.SetArgs(os.Args[2:])
		if err := c.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// waitTimeout is long enough for a busy machine.
const waitTimeout = 2 * time.Minute

// testFleet has worker processes on this machine, a target that records the received attempts, and the collected record.
type testFleet struct {
	t       *testing.T
	target  *httptest.Server
	workers []*process

	mu      sync.Mutex
	reached map[string]map[uint64]bool // attempts that the target received: numbers by worker
	cut     map[string]bool
	came    map[uint16]map[uint64]int // recorded attempts by lane and number
	lanes   map[uint16]string         // the worker of each
	missing map[uint16]uint64         // the first number that may be missing, by lane
	history *record.HistoryWriter

	refused func() // called at a request to a partitioned worker, unless nil
}

type process struct {
	name, address string
	cmd           *exec.Cmd
	dead          atomic.Bool
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.dead.Store(true)
}

func newTestFleet(t *testing.T, workers int, lane probes.Lane) *testFleet {
	w := &testFleet{t: t, reached: map[string]map[uint64]bool{}, cut: map[string]bool{}, came: map[uint16]map[uint64]int{},
		lanes: map[uint16]string{}, missing: map[uint16]uint64{}}
	w.target = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if _, number, is := strings.Cut(in.Header.Get("X-Hitless-Attempt"), "/"); is { // without the header it is a check whether the target answers
			seq, _ := strconv.ParseUint(number, 10, 64)
			w.mu.Lock()
			if w.reached[in.Host] == nil {
				w.reached[in.Host] = map[uint64]bool{}
			}
			w.reached[in.Host][seq] = true
			w.mu.Unlock()
		}
		_, _ = io.WriteString(out, "web-1")
	}))
	t.Cleanup(w.target.Close)
	lane.Target = netip.MustParseAddrPort(w.target.Listener.Addr().String())
	for i := range workers {
		lane.Host = fmt.Sprintf("worker-%02d", i)
		w.workers = append(w.workers, w.spawn(lane))
	}
	return w
}

// spawn starts a worker and reads its address.
func (w *testFleet) spawn(lane probes.Lane) *process {
	w.t.Helper()
	text, err := json.Marshal(lane)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], fleet.WorkerName, "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), fleet.LaneVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	p := &process{name: lane.Host, cmd: cmd}
	w.t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(line), "listens on ")
	if err != nil || !found {
		w.t.Fatalf("the worker printed %q (%v)", line, err)
	}
	p.address = address
	return p
}

func (w *testFleet) Workers(context.Context) (all []fleet.Member, err error) {
	for _, p := range w.workers {
		all = append(all, fleet.Member{Name: p.name, Node: "node-1"})
	}
	return all, nil
}

func (w *testFleet) Send(ctx context.Context, name string, r fleet.Request) ([]byte, error) {
	w.mu.Lock()
	cut := w.cut[name]
	w.mu.Unlock()
	if cut {
		if w.refused != nil {
			w.refused()
		}
		return nil, errors.New("no route to the worker")
	}
	p := w.workers[slices.IndexFunc(w.workers, func(p *process) bool { return p.name == name })]
	if p.dead.Load() {
		return nil, fmt.Errorf("no such process: %w", fleet.ErrGone)
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+fleet.Path+"?"+r.Query().Encode(), nil)
	if err != nil {
		return nil, err
	}
	out, err := http.DefaultClient.Do(in)
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}

func (w *testFleet) Event(e record.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b := e.Body.(type) {
	case record.Lane:
		w.lanes[b.ID] = b.Worker
	case record.MissingRecord:
		w.missing[b.Lane] = b.Seq
	}
	w.history.Event(e)
}

func (w *testFleet) Attempt(a record.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.came[a.Lane] == nil {
		w.came[a.Lane] = map[uint64]int{}
	}
	w.came[a.Lane][a.Seq]++
	w.history.Attempt(a)
}

// lane returns the id of a worker's lane in the record.
func (w *testFleet) lane(name string) uint16 {
	for id, worker := range w.lanes {
		if worker == name {
			return id
		}
	}
	return 0
}

// await waits for a condition, which is checked with the lock.
func (w *testFleet) await(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		so := holds()
		w.mu.Unlock()
		if so {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("after %v the condition is still false: %s", waitTimeout, what)
		}
	}
}

// Of twenty workers two are killed and one is partitioned for a time. Each attempt that reached the target is in the record once, or in
// the missing record of its worker. Only the killed workers have a missing record, and the report names it.
func TestTwentyWorkersWithTwoKilledAndOnePartitioned(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 10, Protocol: probes.ProtocolTCPNew}
	w := newTestFleet(t, 20, lane)
	dir := t.TempDir()
	var err error
	if w.history, err = record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{Scenario: "fleet", Clock: "real"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	lane.Target = netip.MustParseAddrPort(w.target.Listener.Addr().String())
	c, err := fleet.New(fleet.Config{Transport: w, Record: w, Now: now, Lane: lane, Wanted: 20, FirstLane: 1, Interval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	phase := func(name string) {
		w.Event(record.Event{At: now(), Object: name, Text: name, Body: record.Phase{}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := c.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	phase("baseline")
	running, stop := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() { defer close(ran); c.Run(running) }()
	each := func(more int) func() bool {
		var from map[string]int
		return func() bool {
			have := map[string]int{}
			for id, name := range w.lanes {
				have[name] = len(w.came[id])
			}
			if from == nil {
				from = have
			}
			return len(have) == 20 && !slices.ContainsFunc(w.workers, func(p *process) bool {
				return !w.cut[p.name] && !p.dead.Load() && have[p.name] < from[p.name]+more
			})
		}
	}
	w.await("each worker has five attempts in the record", each(5))

	phase("scenario")
	killed, cut := []string{"worker-03", "worker-11"}, "worker-07"
	for _, p := range w.workers {
		if slices.Contains(killed, p.name) {
			p.kill()
		}
	}
	w.mu.Lock()
	w.cut[cut] = true
	sofar := len(w.reached[cut])
	w.mu.Unlock()
	w.await("the others have ten more", each(10))
	w.await("the partitioned worker has five more attempts at the target", func() bool { return len(w.reached[cut]) > sofar+5 })
	w.mu.Lock()
	w.cut[cut] = false
	w.mu.Unlock()
	w.await("the partitioned worker has caught up", func() bool { return len(w.came[w.lane(cut)]) > sofar+5 })
	stop()
	<-ran
	c.Finish(ctx)
	phase("end")
	if err := w.history.Close(); err != nil {
		t.Fatal(err)
	}
	w.judge(dir, killed)
}

// judge compares the record with the attempts that reached the target.
func (w *testFleet) judge(dir string, killed []string) {
	t := w.t
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lanes) != 20 {
		t.Errorf("%d lanes, want one for each worker", len(w.lanes))
	}
	attempts := 0
	for id, name := range w.lanes {
		first, lost := w.missing[id]
		if lost != slices.Contains(killed, name) {
			t.Errorf("%s has a missing record: %v; killed were %v", name, lost, killed)
		}
		for seq, times := range w.came[id] {
			attempts += times
			if times != 1 {
				t.Errorf("attempt %d of %s is %d times in the record", seq, name, times)
			}
		}
		for seq := range w.reached[name] {
			if w.came[id][seq] == 0 && !(lost && seq >= first) {
				t.Errorf("attempt %d of %s reached the target, and is neither in the record nor in a missing record", seq, name)
			}
		}
		if n := uint64(len(w.came[id])); !lost && (w.came[id][0] != 1 || w.came[id][n-1] != 1) {
			t.Errorf("the %d attempts of %s are not those from 0 to %d", n, name, n-1)
		}
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	why := strings.Join(r.Reasons, "\n")
	if r.Totals.Attempts != attempts || strings.Contains(why, "lost records") || strings.Contains(why, "damaged") ||
		strings.Count(why, "a gap in the record of worker") != len(killed) {
		t.Errorf("the report has %d attempts, the record %d; the reasons are:\n%s", r.Totals.Attempts, attempts, why)
	}
	for _, l := range r.Lanes {
		if l.Fleet == nil || l.Fleet.Node != "node-1" || l.Fleet.ClockMs <= 0 {
			t.Errorf("the report has %+v of lane %s", l.Fleet, l.Name)
		}
	}
}

// A stopped worker, as in a drain, makes no more attempts, and ends after all its attempts were fetched.
func TestStoppedWorkerIsDrained(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 50}
	w := newTestFleet(t, 1, lane)
	dir := t.TempDir()
	var err error
	if w.history, err = record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{Scenario: "fleet", Clock: "real"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	lane.Target = netip.MustParseAddrPort(w.target.Listener.Addr().String())
	c, err := fleet.New(fleet.Config{Transport: w, Record: w, Now: func() time.Duration { return time.Since(begin) }, Lane: lane, Wanted: 1,
		FirstLane: 1, Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := c.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	name := w.workers[0].name
	w.await("some attempts have reached the target", func() bool { return len(w.reached[name]) > 10 })
	if err := w.workers[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// It ends after all attempts were fetched, without a command to end.
	running, stop := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() { defer close(ran); c.Run(running) }()
	if err := w.workers[0].cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	stop()
	<-ran
	c.Finish(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.lane(name)
	if _, found := w.missing[id]; !whole(w.came[id], w.reached[name]) || !found {
		t.Errorf("%d attempts of %d were fetched; the early end is recorded: %v", len(w.came[id]), len(w.reached[name]), found)
	}
}

// whole reports whether all attempts that reached the target were fetched.
func whole(came map[uint64]int, reached map[uint64]bool) bool {
	for seq := range reached {
		if came[seq] == 0 {
			return false
		}
	}
	return len(reached) > 0
}

// The error of an incomplete fleet has the number of workers and the reason.
func TestMissingFleetIsAnError(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 10}
	w := newTestFleet(t, 2, lane)
	w.cut["worker-01"] = true
	lane.Target = netip.MustParseAddrPort(w.target.Listener.Addr().String())
	c, err := fleet.New(fleet.Config{Transport: w, Record: w, Now: func() time.Duration { return 0 }, Lane: lane, Wanted: 2, FirstLane: 1, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.refused = func() { cancel() }
	err = c.Begin(ctx)
	if err == nil || !strings.Contains(err.Error(), "of 2 workers have had an answer from "+lane.Target.String()) || !strings.Contains(err.Error(), "worker-01: no route to the worker") {
		t.Errorf("%v, want the number of workers and the reason", err)
	}
}
