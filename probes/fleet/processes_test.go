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

// The workers of the test are processes of its own program.
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

// patience is for what happens sooner or later, however busy the machine is.
const patience = 2 * time.Minute

// world is twenty processes on this machine, a target that knows what reached it, and what is recorded of it.
type world struct {
	t       *testing.T
	target  *httptest.Server
	workers []*process

	mu      sync.Mutex
	reached map[string]map[uint64]bool // the target's own truth: by worker, the numbers of its attempts
	cut     map[string]bool
	came    map[uint16]map[uint64]int // recorded, by lane and number
	lanes   map[uint16]string         // the worker of each
	gaps    map[uint16]uint64         // the first number that may be missing
	history *record.HistoryWriter

	refused func() // is called when one that is cut off is asked, unless nil
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

func newWorld(t *testing.T, workers int, lane probes.Lane) *world {
	w := &world{t: t, reached: map[string]map[uint64]bool{}, cut: map[string]bool{}, came: map[uint16]map[uint64]int{},
		lanes: map[uint16]string{}, gaps: map[uint16]uint64{}}
	w.target = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if _, number, is := strings.Cut(in.Header.Get("X-Hitless-Attempt"), "/"); is { // else it only looks whether we answer
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

// spawn starts a worker and learns where it is asked.
func (w *world) spawn(lane probes.Lane) *process {
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
	said, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(said), "asked at ")
	if err != nil || !found {
		w.t.Fatalf("the worker said %q (%v)", said, err)
	}
	p.address = address
	return p
}

func (w *world) Workers(context.Context) (all []fleet.Member, err error) {
	for _, p := range w.workers {
		all = append(all, fleet.Member{Name: p.name, Node: "node-1"})
	}
	return all, nil
}

func (w *world) Send(ctx context.Context, name string, r fleet.Request) ([]byte, error) {
	w.mu.Lock()
	cut := w.cut[name]
	w.mu.Unlock()
	if cut {
		if w.refused != nil {
			w.refused()
		}
		return nil, errors.New("no route to it")
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

func (w *world) Event(e record.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b := e.Body.(type) {
	case record.Lane:
		w.lanes[b.ID] = b.Worker
	case record.MissingRecord:
		w.gaps[b.Lane] = b.Seq
	}
	w.history.Event(e)
}

func (w *world) Attempt(a record.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.came[a.Lane] == nil {
		w.came[a.Lane] = map[uint64]int{}
	}
	w.came[a.Lane][a.Seq]++
	w.history.Attempt(a)
}

// lane is the number of a worker's lane in the record.
func (w *world) lane(name string) uint16 {
	for id, worker := range w.lanes {
		if worker == name {
			return id
		}
	}
	return 0
}

// await waits until something holds; the world is locked while it is looked at.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		so := holds()
		w.mu.Unlock()
		if so {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

// Twenty workers, of which two are killed and one is cut off for a while: what reached the target is in the record once, or in the
// gap that is told of its worker; the two have one, nobody else does, and the report says so.
func TestTwentyWorkersWithTwoKilledAndOnePartitioned(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 10, Protocol: probes.ProtocolTCPNew}
	w := newWorld(t, 20, lane)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	w.await("the one that is cut off goes on all the while", func() bool { return len(w.reached[cut]) > sofar+5 })
	w.mu.Lock()
	w.cut[cut] = false
	w.mu.Unlock()
	w.await("the one that was cut off has caught up", func() bool { return len(w.came[w.lane(cut)]) > sofar+5 })
	stop()
	<-ran
	c.Finish(ctx)
	phase("end")
	if err := w.history.Close(); err != nil {
		t.Fatal(err)
	}
	w.judge(dir, killed)
}

// judge holds the record against what reached the target.
func (w *world) judge(dir string, killed []string) {
	t := w.t
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lanes) != 20 {
		t.Errorf("%d lanes, want one for each worker", len(w.lanes))
	}
	attempts := 0
	for id, name := range w.lanes {
		first, lost := w.gaps[id]
		if lost != slices.Contains(killed, name) {
			t.Errorf("%s has a gap: %v; killed were %v", name, lost, killed)
		}
		for seq, times := range w.came[id] {
			attempts += times
			if times != 1 {
				t.Errorf("attempt %d of %s stands %d times in the record", seq, name, times)
			}
		}
		for seq := range w.reached[name] {
			if w.came[id][seq] == 0 && !(lost && seq >= first) {
				t.Errorf("attempt %d of %s reached the target, and neither is it in the record nor in a gap", seq, name)
			}
		}
		if n := uint64(len(w.came[id])); !lost && (w.came[id][0] != 1 || w.came[id][n-1] != 1) {
			t.Errorf("the %d attempts of %s are not those from 0 to %d", n, name, n-1)
		}
	}
	h, err := record.OpenHistory(dir)
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
		t.Errorf("a report of %d attempts, of %d that were recorded; it says:\n%s", r.Totals.Attempts, attempts, why)
	}
	for _, l := range r.Lanes {
		if l.Fleet == nil || l.Fleet.Node != "node-1" || l.Fleet.ClockMs <= 0 {
			t.Errorf("the report has %+v of lane %s", l.Fleet, l.Name)
		}
	}
}

// A worker that is told to go, as a drain does, makes no more attempts and hands out all that it has made before it goes.
func TestStoppedWorkerIsDrained(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 50}
	w := newWorld(t, 1, lane)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	name := w.workers[0].name
	w.await("some attempts have reached the target", func() bool { return len(w.reached[name]) > 10 })
	if err := w.workers[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// It goes when all was fetched, and nobody orders it to end.
	running, stop := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() { defer close(ran); c.Run(running) }()
	if err := w.workers[0].cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	stop()
	<-ran
	c.Finish(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.lane(name)
	if _, told := w.gaps[id]; !whole(w.came[id], w.reached[name]) || !told {
		t.Errorf("%d attempts of %d have come; that it ended early is told: %v", len(w.came[id]), len(w.reached[name]), told)
	}
}

// whole reports whether everything that reached the target has come.
func whole(came map[uint64]int, reached map[uint64]bool) bool {
	for seq := range reached {
		if came[seq] == 0 {
			return false
		}
	}
	return len(reached) > 0
}

// A fleet that does not come says who is missing, and why.
func TestMissingFleetIsAnError(t *testing.T) {
	lane := probes.Lane{ID: 1, Name: "fleet", Rate: 10}
	w := newWorld(t, 2, lane)
	w.cut["worker-01"] = true
	lane.Target = netip.MustParseAddrPort(w.target.Listener.Addr().String())
	c, err := fleet.New(fleet.Config{Transport: w, Record: w, Now: func() time.Duration { return 0 }, Lane: lane, Wanted: 2, FirstLane: 1, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.refused = func() { cancel() }
	err = c.Begin(ctx)
	if err == nil || !strings.Contains(err.Error(), "of 2 workers have had an answer of "+lane.Target.String()) || !strings.Contains(err.Error(), "worker-01: no route to it") {
		t.Errorf("%v, want how many of the workers there are, and why not all", err)
	}
}
