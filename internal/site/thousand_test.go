//go:build unix

package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// nation is a cluster of many nodes with a worker on each, and a clock that skips idle time. Workers, journals, collector, the transport
// through the API server and the replay control plane are real. The Deployment's controller and the kubelets (deploy), the network
// (wires) and the sockets of the probes (playedEngine) are simulated. Every simulated attempt succeeds.
type nation struct {
	t      *testing.T
	net    *wires
	server *replay.Server
	api    *tally

	mu      sync.Mutex
	pods    map[string]*playedPod // by name
	history *record.HistoryWriter
	lanes   map[uint16]*heard
	events  []record.Event
	wrong   []string
	begin   time.Time
}

// playedPod is a worker's process.
type playedPod struct {
	name, host string
	engine     *playedEngine
	stop       context.CancelCauseFunc
	ended      chan struct{}
}

// heard is a lane in the record.
type heard struct {
	pod   *playedPod
	come  []bool        // by number
	off   time.Duration // largest error of the recorded time of an attempt
	bound time.Duration // recorded bound of that error
	gap   *record.MissingRecord
}

// playedEngine makes attempts without sockets, with a wrong clock.
type playedEngine struct {
	born   time.Time
	was    time.Duration // its clock at its start
	rate   float64       // of its clock
	record func(record.Attempt)
	start  chan record.Attempt // its first attempt
	source netip.AddrPort
	gap    time.Duration
	first  time.Duration // scheduled time of attempt 0
	closed chan struct{}
	once   sync.Once
	made   atomic.Uint64
}

func (e *playedEngine) Now() time.Duration {
	return e.was + time.Duration(float64(time.Since(e.born))*e.rate)
}

// truly returns the true time of a time of its clock.
func (e *playedEngine) truly(own time.Duration) time.Time {
	return e.born.Add(time.Duration(float64(own-e.was) / e.rate))
}

func (e *playedEngine) Start(l probes.Lane, at time.Duration) error {
	e.gap, e.first = l.Interval(), at
	e.start <- record.Attempt{Lane: l.ID, Intended: at, Start: at + 40*time.Microsecond, Connect: 400 * time.Microsecond, Total: time.Millisecond,
		Class: record.OK, Source: e.source, Backend: "web-7d4b9c9f6d-x2x7k", Node: "node-0007", Generation: "7d4b9c9f6d"}
	return nil
}

func (e *playedEngine) Close()                                    { e.once.Do(func() { close(e.closed) }) }
func (e *playedEngine) Answers(context.Context, probes.Lane) bool { return true }

// Run makes the attempts of each second together.
func (e *playedEngine) Run(ctx context.Context) error {
	var next record.Attempt
	select {
	case next = <-e.start:
	case <-e.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for going := true; going; {
		select {
		case <-time.After(time.Second):
		case <-e.closed:
			going = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for now := e.Now(); next.Intended+next.Total <= now; next.Seq++ {
			e.made.Store(next.Seq + 1)
			e.record(next)
			next.Intended, next.Start = next.Intended+e.gap, next.Start+e.gap
			next.Source = netip.AddrPortFrom(next.Source.Addr(), next.Source.Port()+7|0x8000)
		}
	}
	return nil
}

// tally counts the requests to the API server.
type tally struct {
	next      http.Handler
	mu        sync.Mutex
	questions map[int64]int // by second
	lists     int
}

func (a *tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if strings.Contains(r.URL.Path, "/proxy/") {
		a.questions[time.Now().Unix()]++
	} else {
		a.lists++
	}
	a.mu.Unlock()
	a.next.ServeHTTP(w, r)
}

// load has the counts since the last call.
type load struct {
	questions, most, lists int // most: in a second
	bytes                  int64
	took                   time.Duration
}

func (n *nation) load(since time.Time) load {
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	l := load{lists: n.api.lists, bytes: n.net.passed.Swap(0), took: time.Since(since)}
	for _, count := range n.api.questions {
		l.questions, l.most = l.questions+count, max(l.most, count)
	}
	n.api.questions, n.api.lists = map[int64]int{}, 0
	return l
}

func (n *nation) Event(e record.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history.Event(e)
	n.events = append(n.events, e)
	switch b := e.Body.(type) {
	case record.Lane:
		n.lanes[b.ID] = &heard{pod: n.pods[b.Worker]}
	case record.ClockBound:
		n.lanes[b.Lane].bound = b.Bound
	case record.MissingRecord:
		n.lanes[b.Lane].gap = &b
	}
}

func (n *nation) Attempt(a record.Attempt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history.Attempt(a)
	h := n.lanes[a.Lane]
	for uint64(len(h.come)) <= a.Seq {
		h.come = append(h.come, false)
	}
	if h.come[a.Seq] {
		n.wrong = append(n.wrong, fmt.Sprintf("attempt %d of %s stands twice", a.Seq, h.pod.name))
	}
	h.come[a.Seq] = true
	h.off = max(h.off, (a.Intended - h.pod.intended(a.Seq).Sub(n.begin)).Abs())
}

// intended returns the scheduled time of an attempt on the true clock.
func (p *playedPod) intended(seq uint64) time.Time {
	return p.engine.truly(p.engine.first + time.Duration(seq)*p.engine.gap)
}

// newNation starts a cluster whose API server has only the Service.
func newNation(t *testing.T, history string) *nation {
	n := &nation{t: t, net: newWires(), server: replay.New(), pods: map[string]*playedPod{}, lanes: map[uint16]*heard{}, begin: time.Now()}
	n.server.Dial = n.net.dial
	if _, err := n.server.Apply(&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "run"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 80}}}}); err != nil {
		t.Fatal(err)
	}
	n.api = &tally{next: n.server.Handler(), questions: map[int64]int{}}
	api := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.api.ServeHTTP(w, r)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments") {
			n.deploy()
		}
	})}
	listener := n.net.listen("api.test:80")
	served := make(chan struct{})
	go func() { defer close(served); _ = api.Serve(listener) }()
	t.Cleanup(func() { _ = api.Close(); <-served })
	var err error
	if n.history, err = record.NewHistoryWriter(history, record.Run{Scenario: "quiet", Clock: "real"}); err != nil {
		t.Fatal(err)
	}
	return n
}

// deploy simulates the Deployment's controller and the kubelets.
func (n *nation) deploy() {
	template, workers := n.template()
	for i := range workers {
		n.spawn(i, template)
	}
}

// template returns the Deployment's pod template and its number of replicas.
func (n *nation) template() (template *corev1.PodTemplateSpec, workers int) {
	c, err := cluster.New(&rest.Config{Host: "http://api.test", Dial: n.net.dial})
	if err != nil {
		n.t.Fatal(err)
	}
	d, err := c.Client.AppsV1().Deployments("run").Get(context.Background(), cluster.FleetName, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return &d.Spec.Template, int(*d.Spec.Replicas)
}

func podName(number int) string { return fmt.Sprintf("fleet-6c8f9b7d55-%05d", number) }

// spawn starts a worker's pod with the lane of the template. Its clock drifts by up to 200 ppm.
func (n *nation) spawn(number int, template *corev1.PodTemplateSpec) {
	name, host := podName(number), fmt.Sprintf("10.%d.%d.2", 100+number/250, number%250)
	var lane probes.Lane
	if err := json.Unmarshal([]byte(template.Spec.Containers[0].Env[0].Value), &lane); err != nil {
		n.t.Error(err)
		return
	}
	ctx, stop := context.WithCancelCause(context.Background())
	p := &playedPod{name: name, host: host, stop: stop, ended: make(chan struct{}), engine: &playedEngine{born: time.Now(),
		was: time.Duration(number) * 137 * time.Millisecond, rate: 1 + float64(number*7919%401-200)/1e6, start: make(chan record.Attempt, 1),
		closed: make(chan struct{}), source: netip.AddrPortFrom(netip.MustParseAddr(host), uint16(32768+number))}}
	listener := n.net.listen(host + ":" + strconv.Itoa(fleetPort))
	go func() {
		defer close(p.ended)
		_ = fleet.ServeWith(ctx, listener, lane, func(_ string, recorder func(record.Attempt)) (fleet.Engine, error) {
			p.engine.record = recorder
			return p.engine, nil
		})
	}()
	n.mu.Lock()
	n.pods[name] = p
	n.mu.Unlock()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: *template.Spec.DeepCopy(),
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "run", Labels: template.Labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: host}}
	pod.Spec.NodeName = fmt.Sprintf("node-%04d", number)
	if _, err := n.server.Apply(pod); err != nil {
		n.t.Error(err)
	}
}

// kill ends a worker's process and its node, without a report to the API server.
func (n *nation) kill(p *playedPod) {
	n.net.cut(p.host, true)
	p.engine.Close()
	p.stop(errors.New("killed"))
}

// judge reports attempts that are in the record twice, or neither in the record nor in a missing record. It also reports missing records
// of workers that were not lost.
func (n *nation) judge(lost map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, wrong := range n.wrong {
		n.t.Error(wrong)
	}
	lanes := map[string]*heard{}
	for _, h := range n.lanes {
		lanes[h.pod.name] = h
		if h.off > h.bound {
			n.t.Errorf("times of %s are wrong by %v, more than the recorded bound %v", h.pod.name, h.off, h.bound)
		}
		if (h.gap != nil) != lost[h.pod.name] {
			n.t.Errorf("%s has the missing record %+v; lost: %v", h.pod.name, h.gap, lost[h.pod.name])
		}
	}
	for name, p := range n.pods {
		h, made := lanes[name], int(p.engine.made.Load())
		if h == nil {
			n.t.Errorf("%s made %d attempts, and has no lane", name, made)
			continue
		}
		if len(h.come) > made {
			n.t.Errorf("%s made %d attempts, and %d are in the record", name, made, len(h.come))
		}
		for seq := range made {
			if there := seq < len(h.come) && h.come[seq]; !there && !h.covers(seq, p.intended(uint64(seq)).Sub(n.begin)) {
				n.t.Errorf("attempt %d of %s is neither in the record nor in a missing record", seq, name)
				break
			}
		}
	}
}

// covers reports whether the missing record contains an attempt.
func (h *heard) covers(seq int, intended time.Duration) bool {
	if h.gap == nil {
		return false
	}
	return uint64(seq) >= h.gap.Seq && h.gap.From <= intended && intended <= h.gap.To
}

// disturb kills 1 % of the workers with their nodes, replaces another 1 %, and partitions 10 % for a time.
func (n *nation) disturb(workers int, away time.Duration) (lost map[string]bool) {
	template, _ := n.template()
	lost = map[string]bool{}
	var cut []*playedPod
	for i := range workers {
		p := n.pods[podName(i)]
		switch {
		case i%100 == 1:
			n.kill(p)
			lost[p.name] = true
		case i%100 == 2:
			n.kill(p)
			lost[p.name] = true
			if err := n.server.Delete(replay.Ref{Kind: "Pod", Namespace: "run", Name: p.name}, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				n.t.Error(err)
			}
			n.spawn(workers+i, template)
		case i%10 == 3:
			n.net.cut(p.host, true)
			cut = append(cut, p)
		}
	}
	time.Sleep(away)
	for _, p := range cut {
		n.net.cut(p.host, false)
	}
	return lost
}

// simulated has the results of a simulation.
type simulated struct {
	begin, running, end load
	attempts            int   // recorded attempts
	history             int64 // bytes
	memory              int64 // bytes that the collector holds
}

// simulate runs a fleet with failures, and compares the record with the simulated attempts.
func simulate(t *testing.T, workers int) (s simulated) {
	dir := t.TempDir()
	n := newNation(t, filepath.Join(dir, "history"))
	c, err := cluster.New(&rest.Config{Host: "http://api.test", Dial: n.net.dialCounted})
	if err != nil {
		t.Fatal(err)
	}
	run := &Cluster{namespace: "run", cluster: c, live: LiveOptions{Patience: 3 * time.Minute, Fleet: &FleetOptions{Workers: workers, Image: "hitless", Rate: fleetRate}}}
	p := &fleetProber{Prober: &noLanes{}, site: run, record: n, now: func() time.Duration { return time.Since(n.begin) }}
	phase := func(name string) {
		n.Event(record.Event{At: p.now(), Object: name, Text: name, Body: record.Phase{}})
	}
	since := time.Now()
	if _, err := p.StartLane(t.Context(), scenarios.LaneSpec{Name: "tcp-new", Service: "web", Backends: []string{"web-"}, Host: "web"}); err != nil {
		t.Fatal(err)
	}
	s.begin, since = n.load(since), time.Now()
	phase("baseline")
	time.Sleep(30 * time.Second)
	phase("scenario")
	lost := n.disturb(workers, 2*time.Minute)
	phase("after")
	time.Sleep(30 * time.Second)
	s.running, since = n.load(since), time.Now()
	phase("end")
	p.end(t.Context(), nil)
	s.end = n.load(since)
	if err := n.history.Close(); err != nil {
		t.Fatal(err)
	}
	n.judge(lost)
	for _, h := range n.lanes {
		s.attempts += len(h.come)
	}
	for _, file := range []string{record.AttemptsFile, record.EventsFile} {
		info, err := os.Stat(filepath.Join(dir, "history", file))
		if err != nil {
			t.Fatal(err)
		}
		s.history += info.Size()
	}
	for _, p := range n.pods {
		p.stop(errors.New("the test is over"))
		<-p.ended
	}
	time.Sleep(5 * time.Minute) // idle connections are closed
	s.memory = heap()
	p.collector = nil
	s.memory -= heap()
	return s
}

// The bytes per attempt in the table of docs/thousand-nodes.md.
const (
	passedEach  = 44 // through the API server, with requests and lists
	historyEach = 40 // in the run's folder
)

// Of a thousand workers ten are lost with their nodes, ten are replaced, and a hundred are partitioned for two minutes. Every attempt is in
// the record once or in a missing record, only lost workers have missing records, and the requests are those of the page. The red twins
// are the tests of package fleet, and the lost workers: without their missing records, judge would fail.
func TestThousandWorkers(t *testing.T) {
	var s simulated
	used := cpu(t)
	synctest.Test(t, func(t *testing.T) { s = simulate(t, 1000) })
	used = cpu(t) - used
	t.Logf("%+v", s)
	t.Logf("%v of CPU for %d attempts of workers, API server and collector together", used.Round(100*time.Millisecond), s.attempts)
	near := func(what string, got, want float64) {
		if got < want*0.9 || got > want*1.1 {
			t.Errorf("%s: %.1f, and docs/thousand-nodes.md has %.1f", what, got, want)
		}
	}
	page, err := os.ReadFile("../../docs/thousand-nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{fmt.Sprintf("| bytes through the API server for each attempt | %d |", passedEach), fmt.Sprintf("| bytes of history for each attempt | %d |", historyEach)} {
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/thousand-nodes.md has no row %q; hack/docs/fleet.go has its numbers", row)
		}
	}
	passed := s.begin.bytes + s.running.bytes + s.end.bytes
	near("bytes through the API server for an attempt", float64(passed)/float64(s.attempts), passedEach)
	near("bytes of history for an attempt", float64(s.history)/float64(s.attempts), historyEach)
	near("questions until all have begun", float64(s.begin.questions), 3000)
	near("questions at the end", float64(s.end.questions), 3000)
	if most := s.running.most; most > 40 {
		t.Errorf("%d requests in a second of the run, and docs/thousand-nodes.md has ten, or forty when workers join", most)
	}
	if most := max(s.begin.most, s.end.most); most > 210 {
		t.Errorf("%d requests in a second of its begin and end, and docs/thousand-nodes.md has two hundred", most)
	}
	if lists := s.begin.lists + s.running.lists + s.end.lists; lists > 20 {
		t.Errorf("the pods were listed %d times", lists)
	}
	if s.memory > 20e6 {
		t.Errorf("the collector uses %d bytes, and docs/thousand-nodes.md has less than 20 MB", s.memory)
	}
	if each := used / time.Duration(s.attempts); each > 30*time.Microsecond {
		t.Errorf("%v of CPU time per attempt, more than five times the measured value", each)
	}
}

// cpu returns the CPU time of this process so far.
func cpu(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap returns the used memory.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
